// What to ask first. Edits come first: an answer that repeats what was asked is what drafts are best at.

const CODE = `\`\`\`python
import json

def load(path):
    with open(path) as file:
        return json.load(file)

def save(path, data):
    with open(path, "w") as file:
        json.dump(data, file)
\`\`\``;

/** For models that answer. */
export const QUESTIONS = [
  { title: "Edit code", text: `Write this Python code again, with an indent of 4 where it writes JSON. Answer with the code alone:\n\n${CODE}` },
  {
    title: "Correct a text",
    text:
      "Correct the spelling mistakes in this text and write the whole text again:\n\nYesterday we went to the musuem in the center of " +
      "the town. The new exibition about the history of bicycles was more intresting than we had expected, and the guide explained " +
      "everthing very well.",
  },
  { title: "Explain something", text: "Explain how to reverse a list in Python, step by step, each step with an example." },
];

/** For models that go on with a text. */
export const BEGINNINGS = [
  { title: "A function", text: "import os\nimport sys\n\n\ndef read_lines(path):\n" },
  { title: "A class", text: "class Stack:\n    def __init__(self):\n" },
  { title: "A program", text: "def main():\n    parser = argparse.ArgumentParser(" },
];
