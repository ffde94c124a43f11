// A part of an answer in the document: Markdown or its source, made of the tokens that wrote it, and only of text nodes.

import { codeBlock } from "./code.js";
import { make } from "./dom.js";
import { characters, parseInline } from "./inline.js";
import { parseBlocks } from "./markdown.js";

/**
 * Shows a text that grows. Of a token, by its place in the answer, `isDrafted(place)` says whether it is coloured, and
 * `look(place, space)` returns the classes; `space` is as `spaces` has it.
 */
export class Prose {
  constructor(element, isDrafted, look) {
    Object.assign(this, { element, isDrafted, look });
    this.source = "";
    this.owners = []; // of each character of the source: the place of its token
    this.keys = [];
  }

  append(text, place) {
    this.source += text;
    for (let index = 0; index < text.length; index++) this.owners.push(place);
  }

  /** Bring the document up to date. Blocks that have not changed stay as they are, with what is selected in them. */
  show(isFormatted, isWriting) {
    const blocks = isFormatted ? parseBlocks(this.source) : linesOf(this.source);
    const keys = blocks.map(({ kind, start, end }, index) => `${kind} ${start} ${end} ${isWriting && index === blocks.length - 1}`);
    const same = keys.findIndex((key, index) => key !== this.keys[index]);
    const first = same < 0 ? keys.length : same;
    while (this.element.children.length > first) this.element.lastChild.remove();
    this.keys = keys;
    for (let index = first; index < blocks.length; index++) {
      this.isOpen = isWriting && index === blocks.length - 1;
      this.element.append(this.block(blocks[index]));
    }
  }

  block(block) {
    switch (block.kind) {
      case "line":
        return make("span", {}, ...this.tokens(block.content));
      case "heading": // one level for readers: a model's levels are no outline of this page
        return make("h4", { class: `level-${block.level}`, dir: "auto" }, ...this.inline(block.content));
      case "code": {
        const text = block.content.text;
        return codeBlock(make("code", {}, ...this.tokens(block.content)), text, block.language);
      }
      case "rule":
        return make("hr");
      case "quote":
        return make("blockquote", {}, ...block.blocks.map((inner) => this.block(inner)));
      case "list": {
        const items = block.items.map((blocks) => make("li", { dir: "auto" }, ...blocks.map((inner) => this.inItem(inner, block.isLoose))));
        return block.isOrdered ? make("ol", { start: String(block.first) }, ...items) : make("ul", {}, ...items);
      }
      case "table":
        return this.table(block);
      default:
        return make("p", { dir: "auto" }, ...this.inline(block.content));
    }
  }

  inItem(block, isLoose) {
    return block.kind === "paragraph" && !isLoose ? make("div", {}, ...this.inline(block.content)) : this.block(block);
  }

  table({ rows: [head, ...body], alignments }) {
    const cells = (name, row) => row.map((content, column) => make(name, { class: alignments[column] || null }, ...this.inline(content)));
    const rows = body.map((row) => make("tr", {}, ...cells("td", row)));
    const table = make("table", {}, make("thead", {}, make("tr", {}, ...cells("th", head))), make("tbody", {}, ...rows));
    return make("div", { class: "wide", tabindex: "0", role: "region", "aria-label": "Table" }, table);
  }

  inline(content) {
    const spaces = this.spaces(content.text, content.places);
    const nodesOf = ({ kind, children, href, from, to }) => {
      if (kind === "text") return this.tokens(content, spaces, from, to);
      if (kind === "code") return [make("code", {}, ...this.tokens(content, spaces, from, to))];
      const link = kind === "a" ? { href, title: href, target: "_blank", rel: "noopener noreferrer nofollow" } : {};
      return [make(kind, link, ...children.flatMap(nodesOf))];
    };
    return parseInline(content.text, this.isOpen).flatMap(nodesOf);
  }

  /** Return elements for the tokens in a range of characters: one each, more where its spaces look different. */
  tokens({ text, places }, spaces = this.spaces(text, places), from = 0, to = text.length) {
    const found = [];
    for (const edge of [from, to - 1]) if (text[edge] === " ") spaces[edge] ||= "space";
    for (let begin = from, end = from; begin < to; begin = end) {
      const place = this.owners[places[begin]];
      while (end < to && this.owners[places[end]] === place && spaces[end] === spaces[begin]) end += 1;
      const element = make("span", { class: this.look(place, spaces[begin]) }, text.slice(begin, end));
      element.dataset.place = place;
      found.push(element);
    }
    return found;
  }

  /**
   * Return for each character `gap` for spaces that are kept as they are: at a line's beginning or end, or several together;
   * `space` for one that has no colour, since a side of it has none; else nothing.
   */
  spaces(text, places) {
    const found = new Array(text.length).fill("");
    for (const { 0: run, index } of text.matchAll(/\s+/g)) {
      const end = index + run.length;
      const isGap = index === 0 || run.length > 1 || run === "\n";
      const isInside = !isGap && end < text.length && [index - 1, end].every((side) => this.isDrafted(this.owners[places[side]]));
      if (!isInside) found.fill(isGap ? "gap" : "space", index, end);
    }
    return found;
  }
}

function linesOf(source) {
  const lines = [];
  for (let start = 0, end; start < source.length; start = end) {
    end = source.indexOf("\n", start) + 1 || source.length;
    lines.push({ kind: "line", start, end, content: characters(source, [{ from: start, to: end }]) });
  }
  return lines;
}
