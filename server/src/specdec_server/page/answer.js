// An answer as it is shown: its tokens, coloured, and a cursor that chooses one of them.

import { classesOf } from "./colours.js";
import { make, number } from "./dom.js";
import { statistics } from "./run.js";

/** Shows one run. `choose(view, segment, isSpoken)` is called when a token is pointed at, or keys move the cursor to it. */
export class AnswerView {
  constructor(run, title, choose) {
    this.run = run;
    this.choose = choose;
    this.cursor = null;
    this.tokens = [];
    this.text = make("div", {
      class: "text",
      tabindex: "0",
      role: "group",
      "aria-label": `${title}. Left and right arrow move through its tokens, up and down through its steps.`,
    });
    this.meta = make("p", { class: "meta" });
    this.element = make("div", { class: "run" }, make("h3", {}, title), this.text, this.meta);
    this.text.addEventListener("pointerover", (event) => this.point(event));
    this.text.addEventListener("click", (event) => this.point(event));
    this.text.addEventListener("focus", () => this.cursor === null || this.move(this.cursor));
    this.text.addEventListener("keydown", (event) => this.key(event));
    this.append(run.segments);
    this.tell();
  }

  /** Show further segments. */
  append(segments) {
    const made = segments.map((segment) => {
      const proposer = segment.step === null ? null : this.run.steps[segment.step].proposer;
      const kind = segment.isReasoning ? "reasoning " : "";
      const element = make("span", { class: `token ${kind}${classesOf(proposer, segment.depth)}` }, segment.text);
      element.dataset.place = this.tokens.push({ element, segment }) - 1;
      return element;
    });
    this.text.append(...made);
  }

  /** Show what is known of the run under its text. */
  tell(extra = "") {
    const { tokens, steps, accepted } = statistics(this.run);
    const words = [];
    if (tokens) words.push(`${tokens} tokens`, `${number(tokens / steps)} a step`);
    if (accepted) words.push(`${accepted} from drafts`);
    if (this.run.speed) words.push(`${number(this.run.speed)} tokens/s`);
    if (this.run.seed !== null) words.push(`seed ${this.run.seed}`);
    const why = { length: "reached the most tokens", stopped: "stopped" }[this.run.finish];
    if (why) words.push(why);
    if (extra) words.push(extra);
    this.meta.textContent = words.join(" · ");
  }

  /** Move the cursor to a token, or take it away. */
  move(place, isSpoken = false) {
    this.tokens[this.cursor]?.element.classList.remove("cursor");
    this.cursor = place;
    if (place === null) return;
    const { element, segment } = this.tokens[place];
    element.classList.add("cursor");
    element.scrollIntoView({ block: "nearest" });
    this.choose(this, segment, isSpoken);
  }

  /** Move the cursor to the first token of a step. */
  moveToStep(step) {
    const place = this.tokens.findIndex(({ segment }) => segment.step === step);
    if (place >= 0) this.move(place, true);
  }

  point(event) {
    const place = event.target.dataset.place;
    if (place !== undefined) this.move(Number(place));
  }

  key(event) {
    const last = this.tokens.length - 1;
    if (last < 0 || event.ctrlKey || event.metaKey || event.altKey) return;
    const at = this.cursor ?? -1;
    const moves = {
      ArrowRight: () => Math.min(at + 1, last),
      ArrowLeft: () => Math.max(at - 1, 0),
      ArrowDown: () => this.otherStep(Math.max(at, 0), 1),
      ArrowUp: () => this.otherStep(Math.max(at, 0), -1),
      Home: () => 0,
      End: () => last,
    };
    if (!(event.key in moves)) return;
    event.preventDefault();
    this.move(moves[event.key](), true);
  }

  otherStep(at, direction) {
    const step = this.tokens[at].segment.step;
    let place = at;
    while (this.tokens[place + direction] && this.tokens[place].segment.step === step) place += direction;
    const found = this.tokens[place].segment.step; // then the first token of that step
    while (place > 0 && this.tokens[place - 1].segment.step === found) place -= 1;
    return place;
  }
}
