// An answer as it is shown: its text, in which the tokens are coloured, and a cursor that chooses one of them.

import { classesOf } from "./colours.js";
import { make, number } from "./dom.js";
import { Prose } from "./prose.js";
import { statistics } from "./run.js";

const ENDS = { length: "reached the most tokens", stopped: "stopped" };

/** Shows one run. `choose(view, segment, isSpoken)` is called when a token is pointed at, or keys move the cursor to it. */
export class AnswerView {
  constructor(run, title, isFormatted, choose) {
    this.run = run;
    this.isFormatted = isFormatted;
    this.choose = choose;
    this.cursor = null;
    this.segments = [];
    this.parts = [];
    this.text = make("div", {
      class: "text",
      tabindex: "0",
      role: "group",
      "aria-label": `${title}. Left and right arrow move through its tokens, up and down through its steps.`,
    });
    this.meta = make("p", { class: "meta" });
    this.title = make("h3", {}, title);
    this.element = make("div", { class: "run" }, this.title, this.text, this.meta);
    this.text.addEventListener("pointerover", (event) => this.point(event));
    this.text.addEventListener("click", (event) => this.point(event));
    this.text.addEventListener("focus", () => this.cursor === null || this.move(this.cursor));
    this.text.addEventListener("keydown", (event) => this.key(event));
    this.append(run.segments);
    this.show();
  }

  /** Take in further segments; `show` shows them. */
  append(segments) {
    for (const segment of segments) {
      const place = this.segments.push(segment) - 1;
      const kind = segment.isReasoning ? "reasoning" : "said";
      if (this.parts.at(-1)?.kind !== kind) {
        const element = make("div", { class: kind });
        this.text.append(element);
        const prose = new Prose(element, (token) => this.segments[token].depth > 0, (token, space) => this.look(token, space));
        this.parts.push({ kind, prose });
      }
      this.parts.at(-1).prose.append(segment.text, place);
    }
  }

  /** Bring text and numbers up to date. */
  show(isWriting = false) {
    this.element.classList.toggle("writing", isWriting);
    this.text.classList.toggle("source", !this.isFormatted);
    this.parts.forEach(({ prose }, index) => prose.show(this.isFormatted, isWriting && index === this.parts.length - 1));
    this.tell();
  }

  format(isFormatted) {
    this.isFormatted = isFormatted;
    this.show();
  }

  tell() {
    const { tokens, steps, accepted } = statistics(this.run);
    const words = [];
    if (tokens) words.push(`${tokens} tokens`, `${number(tokens / steps)} a step`);
    if (accepted) words.push(`${accepted} from drafts`);
    if (this.run.speed) words.push(`${number(this.run.speed)} tokens/s`);
    const end = this.run.reason ?? ENDS[this.run.finish];
    if (end) words.push(end);
    this.meta.textContent = words.join(" · ");
  }

  look(place, space) {
    const { step, depth } = this.segments[place];
    const kind = space || (step === null ? "" : classesOf(this.run.steps[step].proposer, depth));
    return `token ${kind}${place === this.cursor ? " cursor" : ""}`;
  }

  /** Return the elements of a token: none where all of it is a mark of Markdown. */
  elementsOf(place) {
    return this.text.querySelectorAll(`[data-place="${place}"]`);
  }

  /** Move the cursor to a token, or take it away. */
  move(place, isSpoken = false) {
    for (const element of this.text.querySelectorAll(".cursor")) element.classList.remove("cursor");
    this.cursor = place;
    if (place === null) return;
    const elements = this.elementsOf(place);
    for (const element of elements) element.classList.add("cursor");
    elements[0]?.scrollIntoView({ block: "nearest", inline: "nearest" });
    this.choose(this, this.segments[place], isSpoken);
  }

  /** Move the cursor to the first token of a step, one that can be seen if there is one. */
  moveToStep(step) {
    const places = this.segments.flatMap((segment, place) => (segment.step === step ? [place] : []));
    const seen = places.find((place) => this.elementsOf(place).length);
    if (places.length) this.move(seen ?? places[0], true);
  }

  point(event) {
    const place = event.target.dataset.place;
    if (place !== undefined) this.move(Number(place));
  }

  key(event) {
    const last = this.segments.length - 1;
    if (last < 0 || event.ctrlKey || event.metaKey || event.altKey) return;
    const at = this.cursor ?? -1;
    const moves = {
      ArrowRight: () => this.seen(at + 1, 1) ?? at,
      ArrowLeft: () => this.seen(at - 1, -1) ?? at,
      ArrowDown: () => this.otherStep(Math.max(at, 0), 1),
      ArrowUp: () => this.otherStep(Math.max(at, 0), -1),
      Home: () => this.seen(0, 1) ?? at,
      End: () => this.seen(last, -1) ?? at,
    };
    if (!(event.key in moves)) return;
    event.preventDefault();
    this.move(Math.max(moves[event.key](), 0), true);
  }

  /** Return the first token that can be seen from a place on; null if there is none. */
  seen(place, direction) {
    while (this.segments[place] && !this.elementsOf(place).length) place += direction;
    return this.segments[place] ? place : null;
  }

  otherStep(at, direction) {
    const step = this.segments[at].step;
    let place = at;
    while (this.segments[place + direction] && this.segments[place].step === step) place += direction;
    const found = this.segments[place].step; // then the first token of that step
    while (place > 0 && this.segments[place - 1].step === found) place -= 1;
    return this.seen(place, 1) ?? place;
  }
}
