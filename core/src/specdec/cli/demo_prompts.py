"""What the demo asks a chat model: questions, and tasks in which much of the answer stands in the prompt."""

from __future__ import annotations

CHATS = (
    "Rewrite this Python function so that the variable `l` is called `numbers`, and change nothing else:\n\n"
    "```python\ndef average(l):\n    total = 0\n    for x in l:\n        total += x\n    if len(l) == 0:\n"
    "        return 0\n    return total / len(l)\n```",
    "Explain in a few sentences why the sky is blue.",
    "Summarize this text in two sentences:\n\nThe harbour seal lives along the coasts of the North Atlantic and the North "
    "Pacific. Harbour seals spend about half of their time in the water and half on land, where they rest, moult and give "
    "birth. A harbour seal can dive for up to half an hour and to a depth of 500 metres, but most dives are short and "
    "shallow. Harbour seals eat fish, squid and shrimp, and each seal eats about five kilograms a day.",
    "Correct the spelling mistakes in this text and write the whole text again:\n\nYesterday we went to the musuem in the "
    "center of the town. The new exibition about the history of bicycles was more intresting than we had expected, and the "
    "guide explained everthing very well. Afterwards we had coffe and cake in the garden behind the musuem.",
    "Write a short, polite email to a neighbour whose dog barks at night.",
    "Answer the question from the text.\n\nText: The Suez Canal was opened in 1869. It joins the Mediterranean Sea and the "
    "Red Sea, and ships that pass through the Suez Canal need not sail around Africa. The canal is 193 kilometres long.\n\n"
    "Question: What does the Suez Canal join, and since when?",
    "Write a Python function that returns the n-th Fibonacci number, with a docstring and two examples.",
    "Turn these lines into a JSON list of objects with the keys name, age and city:\n\nAnna, 31, Oslo\nBen, 27, Lisbon\n"
    "Carla, 45, Turin\nDavid, 38, Porto",
)
