"""The demo's prompts for a chat model: edits, summaries and conversions whose answers repeat much of the prompt."""

from __future__ import annotations

CHATS = (
    "Rewrite this Python function so that the variable `l` is called `numbers`, and change nothing else:\n\n"
    "```python\ndef average(l):\n    total = 0\n    for x in l:\n        total += x\n    if len(l) == 0:\n"
    "        return 0\n    return total / len(l)\n```",
    "Correct the spelling mistakes in this text and write the whole text again:\n\nYesterday we went to the musuem in the "
    "center of the town. The new exibition about the history of bicycles was more intresting than we had expected, and the "
    "guide explained everthing very well. Afterwards we had coffe and cake in the garden behind the musuem.",
    "Add a docstring to this function and write the whole function:\n\n```python\ndef fahrenheit(celsius):\n"
    '    if celsius < -273.15:\n        raise ValueError("below absolute zero")\n    return celsius * 9 / 5 + 32\n```',
    "Summarize this text in two sentences:\n\nThe harbour seal lives along the coasts of the North Atlantic and the North "
    "Pacific. Harbour seals spend about half of their time in the water and half on land, where they rest, moult and give "
    "birth. A harbour seal can dive for up to half an hour and to a depth of 500 metres, but most dives are short and "
    "shallow. Harbour seals eat fish, squid and shrimp, and each seal eats about five kilograms a day.",
    "Repeat the following text word for word:\n\nThe library is open from nine to six on weekdays. On Saturdays it closes at "
    "two. Books may be kept for four weeks, and each book may be renewed twice.",
    "Convert this CSV into a Markdown table:\n\nname,age,city\nAnna,31,Oslo\nBen,27,Lisbon\nCarla,45,Turin\nDavid,38,Porto",
)
