// A turn of the conversation in the document: what was said, the answer, and beside it the answer without drafts.

import { AnswerView } from "./answer.js";
import { codeBlock } from "./code.js";
import { make } from "./dom.js";
import { editForm } from "./edit.js";
import { parseBlocks } from "./markdown.js";

const TITLES = { true: "With drafts", false: "Without drafts" };

/**
 * Shows one turn. `choose` is as for AnswerView; `compare(view)` is called when the answer without drafts is wanted, and
 * `again(view, prompt)` when another answer is, to the same message or to one that was edited.
 */
export class TurnView {
  constructor(turn, isFormatted, { choose, compare, again }) {
    Object.assign(this, { turn, isFormatted, choose, again, views: [] });
    this.runs = make("div", { class: "runs" });
    this.button = make("button", { type: "button", class: "compare", hidden: true }, "Run without drafts and compare");
    this.button.addEventListener("click", () => compare(this));
    this.editing = make("button", { type: "button", class: "edit-message" }, "Edit");
    this.editing.addEventListener("click", () => this.edit());
    const regenerate = make("button", { type: "button", class: "regenerate" }, "Regenerate");
    regenerate.addEventListener("click", () => again(this, turn.prompt));
    this.actions = make("div", { class: "actions", hidden: true }, this.editing, regenerate);
    this.prompt = promptOf(turn.prompt);
    const heading = make("h2", { class: "visually-hidden" }, "You");
    this.element = make("article", { class: "turn" }, heading, this.prompt, this.actions, this.runs, this.button);
    for (const run of [turn.run, turn.plain]) if (run) this.add(run);
  }

  /** Show a run of the turn; return its view. */
  add(run) {
    const title = run.isDrafting ? "Answer" : "Answer without drafts";
    const view = new AnswerView(run, title, this.isFormatted, this.choose);
    this.views.push(view);
    this.runs.append(view.element);
    const isCompared = this.views.length > 1;
    this.runs.classList.toggle("two", isCompared);
    if (isCompared) for (const { run: shown, title: heading } of this.views) heading.textContent = TITLES[shown.isDrafting];
    return view;
  }

  /** Take back the answer without drafts. */
  remove(view) {
    this.views.pop();
    view.element.remove();
    this.runs.classList.remove("two");
    this.views[0].title.textContent = "Answer";
  }

  /** Offer the answer without drafts once there is one with drafts and nothing runs; of the last turn, another answer. */
  offer(isRunning = false, isLast = false) {
    const { run } = this.turn;
    this.actions.hidden = isRunning || !isLast || !run.tokenIds.length;
    this.button.hidden = isRunning || this.views.length !== 1 || !run.isDrafting || !run.tokenIds.length;
  }

  /** Let the message be written anew, in its place. */
  edit() {
    const form = editForm(this.turn.prompt, (text) => {
      form.replaceWith(this.prompt);
      this.actions.hidden = false;
      if (text === null) this.editing.focus();
      else this.again(this, text);
    });
    this.actions.hidden = true;
    this.prompt.replaceWith(form);
    form.elements[0].focus();
  }

  format(isFormatted) {
    this.isFormatted = isFormatted;
    for (const view of this.views) view.format(isFormatted);
  }
}

/** Show what somebody typed as they typed it, code between fences as code. */
function promptOf(text) {
  const element = make("div", { class: "prompt", dir: "auto" });
  let from = 0;
  const add = (to) => {
    const plain = text.slice(from, to).replace(/^\n+|\s+$/g, "");
    if (plain) element.append(make("p", {}, plain));
  };
  for (const block of parseBlocks(text)) {
    if (!block.isFenced) continue;
    add(block.start);
    element.append(codeBlock(make("code", {}, block.content.text), block.content.text, block.language));
    from = block.end;
  }
  add(text.length);
  return element;
}
