"""The demo's questions to a chat model, one of each kind: an edit, a correction and a summary."""

from __future__ import annotations

CHATS = (
    "Write this Python code again, with an indent of 4 where it writes JSON:\n\n"
    "```python\nimport json\n\ndef load(path):\n    with open(path) as file:\n        return json.load(file)\n\n"
    'def save(path, data):\n    with open(path, "w") as file:\n        json.dump(data, file)\n```',
    "Correct the spelling mistakes in this text and write the whole text again:\n\nYesterday we went to the musuem in the "
    "center of the town. The new exibition about the history of bicycles was more intresting than we had expected, and the "
    "guide explained everthing very well. Afterwards we had coffe and cake in the garden behind the musuem.",
    "Summarize this text in two sentences:\n\nThe harbour seal lives along the coasts of the North Atlantic and the North "
    "Pacific. Harbour seals spend about half of their time in the water and half on land, where they rest, moult and give "
    "birth. A harbour seal can dive for up to half an hour and to a depth of 500 metres, but most dives are short and "
    "shallow. Harbour seals eat fish, squid and shrimp, and each seal eats about five kilograms a day.",
)
