// Markdown of a model, read into blocks. Every part of a block knows its place in the source, so that tokens can be shown in it.
//
// Headings, paragraphs, quotes, lists, tables, rules and code, in CommonMark's and GitHub's syntax. HTML is text. Time is
// linear in the length, whatever a model writes: containers are nested at most MAX_DEPTH deep.

import { characters } from "./inline.js";

const MAX_DEPTH = 8;
const FENCE = /^ {0,3}(`{3,}|~{3,})[ \t]*([^`]*)$/;
const HEADING = /^ {0,3}(#{1,6})(?=[ \t]|$)/;
const RULE = /^ {0,3}([-*_])(?:[ \t]*\1){2,}[ \t]*$/;
const QUOTE = /^ {0,3}> ?/;
const ITEM = /^( {0,3})([-*+]|\d{1,9}[.)])(?:[ \t]+|$)/;
const INDENTED = /^(?: {4}|\t)/;

/**
 * Return the blocks of a text: {kind, start, end} and, by kind: `content` (heading, paragraph, code), `level` (heading),
 * `language` and `isFenced` (code), `blocks` (quote), `items`, `isOrdered` and `first` (list), `rows` and `alignments` (table).
 */
export function parseBlocks(source) {
  const lines = [];
  for (let from = 0; from < source.length; ) {
    const found = source.indexOf("\n", from);
    const to = found < 0 ? source.length : found;
    lines.push({ from, to });
    from = to + 1;
  }
  return new Reader(source, lines, 0).blocks();
}

/** Reads the blocks of some lines, from which the marks of the containers around them are taken away. */
class Reader {
  constructor(source, lines, depth) {
    Object.assign(this, { source, lines, depth, at: 0 });
  }

  text(index) {
    const { from, to } = this.lines[index];
    return this.source.slice(from, to);
  }

  isBlank(index) {
    return index >= this.lines.length || !this.text(index).trim();
  }

  blocks() {
    const found = [];
    while (this.at < this.lines.length) {
      if (this.isBlank(this.at)) {
        this.at += 1;
        continue;
      }
      const begin = this.at;
      const block = this.block(this.text(begin));
      found.push({ ...block, start: this.lines[begin].from, end: this.lines[this.at - 1].to });
    }
    return found;
  }

  block(line) {
    const isDeep = this.depth >= MAX_DEPTH;
    const fence = FENCE.exec(line);
    if (fence) return this.fenced(fence);
    const heading = HEADING.exec(line);
    if (heading) return this.heading(line, heading);
    if (RULE.test(line)) return this.rule();
    if (QUOTE.test(line) && !isDeep) return this.quote();
    if (ITEM.test(line) && !isDeep) return this.list();
    if (INDENTED.test(line)) return this.indented();
    if (this.isTable(this.at)) return this.table();
    return this.paragraph();
  }

  /** Whether a line ends a paragraph above it. */
  interrupts(index) {
    const line = this.text(index);
    const item = ITEM.exec(line);
    if (item && item[0].length < line.length && /^(?:\D|1[.)]$)/.test(item[2])) return true; // a year at a line's start is none
    return FENCE.test(line) || HEADING.test(line) || RULE.test(line) || QUOTE.test(line) || this.isTable(index);
  }

  fenced([, mark, info]) {
    const indent = this.text(this.at).indexOf(mark);
    const ends = new RegExp(`^ {0,3}${mark[0]}{${mark.length},}[ \\t]*$`);
    const begin = this.at + 1;
    let end = begin;
    while (end < this.lines.length && !ends.test(this.text(end))) end += 1;
    this.at = Math.min(end + 1, this.lines.length); // a fence that nothing closes goes to the end: it may still come
    const strip = new RegExp(`^ {0,${indent}}`);
    return { kind: "code", isFenced: true, language: info.trim().split(/\s/)[0], content: this.content(begin, end, strip) };
  }

  indented() {
    const begin = this.at;
    let end = begin;
    for (let next = begin; next < this.lines.length && (this.isBlank(next) || INDENTED.test(this.text(next))); next++) {
      if (!this.isBlank(next)) end = next + 1;
    }
    this.at = end;
    return { kind: "code", language: "", content: this.content(begin, end, INDENTED) };
  }

  heading(line, [mark, signs]) {
    const { from } = this.lines[this.at];
    this.at += 1;
    const text = line.slice(mark.length).trimEnd().replace(/(^|[ \t])#+$/, "").trimEnd();
    const begin = from + mark.length + numSpaces(text);
    return { kind: "heading", level: signs.length, content: characters(this.source, [{ from: begin, to: from + mark.length + text.length }]) };
  }

  rule() {
    this.at += 1;
    return { kind: "rule" };
  }

  quote() {
    const begin = this.at;
    while (this.at < this.lines.length && QUOTE.test(this.text(this.at))) this.at += 1;
    const inner = this.lines.slice(begin, this.at).map(({ from, to }, index) => ({ from: from + QUOTE.exec(this.text(begin + index))[0].length, to }));
    return { kind: "quote", blocks: new Reader(this.source, inner, this.depth + 1).blocks() };
  }

  list() {
    const [, , mark] = ITEM.exec(this.text(this.at));
    const isOrdered = /\d/.test(mark);
    const items = [];
    let isLoose = false;
    while (this.at < this.lines.length) {
      const found = ITEM.exec(this.text(this.at));
      if (!found || found[2].at(-1) !== mark.at(-1) || RULE.test(this.text(this.at))) break;
      const { lines, hasGap } = this.item(found);
      const blocks = new Reader(this.source, lines, this.depth + 1).blocks();
      items.push(blocks);
      isLoose ||= hasGap && blocks.length > 1;
      let next = this.at;
      while (next < this.lines.length && this.isBlank(next)) next += 1;
      const isNext = next > this.at && next < this.lines.length && ITEM.exec(this.text(next))?.[2].at(-1) === mark.at(-1);
      isLoose ||= isNext;
      if (isNext) this.at = next;
    }
    return { kind: "list", isOrdered, first: isOrdered ? Number.parseInt(mark, 10) : null, isLoose, items };
  }

  /** Take the lines of an item: those indented below its mark, and text that goes on without an indent. */
  item([whole, indent, mark]) {
    const { from, to } = this.lines[this.at];
    const lines = [{ from: from + whole.length, to }];
    const wanted = indent.length + Math.min(mark.length + 1, 2); // models indent by two below "1." as well
    const most = indent.length + mark.length + 1;
    let hasGap = false;
    let isText = whole.length < to - from;
    this.at += 1;
    while (this.at < this.lines.length) {
      const text = this.text(this.at);
      const line = this.lines[this.at];
      if (!text.trim()) {
        let next = this.at;
        while (next < this.lines.length && this.isBlank(next)) next += 1;
        if (next === this.lines.length || indentOf(this.text(next)) < wanted) break;
        hasGap = true;
        isText = false;
        for (; this.at < next; this.at++) lines.push({ from: this.lines[this.at].to, to: this.lines[this.at].to });
        continue;
      }
      const depth = indentOf(text);
      if (depth >= wanted) lines.push({ from: line.from + numCharacters(text, Math.min(depth, most)), to: line.to });
      else if (isText && !ITEM.test(text) && !this.interrupts(this.at)) lines.push(line);
      else break;
      isText = true;
      this.at += 1;
    }
    return { lines, hasGap };
  }

  isTable(index) {
    if (index + 1 >= this.lines.length || !this.text(index).includes("|")) return false;
    const second = this.text(index + 1);
    if (!second.includes("|") || !/^[\s|:-]+$/.test(second)) return false;
    const marks = cellsOf(second, 0);
    return marks.every(({ from, to }) => /^:?-+:?$/.test(second.slice(from, to))) && marks.length === cellsOf(this.text(index), 0).length;
  }

  table() {
    const marks = this.text(this.at + 1);
    const alignments = cellsOf(marks, 0).map(({ from, to }) => alignmentOf(marks.slice(from, to)));
    const rows = [this.row(this.at)];
    this.at += 2;
    while (!this.isBlank(this.at) && this.text(this.at).includes("|")) {
      rows.push(this.row(this.at));
      this.at += 1;
    }
    return { kind: "table", alignments, rows };
  }

  row(index) {
    return cellsOf(this.text(index), this.lines[index].from).map((range) => characters(this.source, [range]));
  }

  paragraph() {
    const begin = this.at;
    this.at += 1;
    while (!this.isBlank(this.at) && !this.interrupts(this.at)) this.at += 1;
    return { kind: "paragraph", content: this.content(begin, this.at, null) };
  }

  /** Return the characters of lines, without what `strip` matches at their beginnings. */
  content(begin, end, strip) {
    const ranges = [];
    for (let index = begin; index < end; index++) {
      const { from, to } = this.lines[index];
      const cut = strip ? (strip.exec(this.text(index))?.[0].length ?? 0) : 0;
      ranges.push({ from: from + cut, to: index === end - 1 ? to : to + 1 }); // with the line's end
    }
    return characters(this.source, ranges);
  }
}

function numSpaces(text) {
  return text.length - text.trimStart().length;
}

/** Return how many columns a line is indented by; a tab goes on to the next multiple of four. */
function indentOf(text) {
  let columns = 0;
  for (const sign of text) {
    if (sign !== " " && sign !== "\t") break;
    columns += sign === " " ? 1 : 4 - (columns % 4);
  }
  return columns;
}

/** Return how many characters of an indent fill so many columns. */
function numCharacters(text, columns) {
  let count = 0;
  while (count < text.length && indentOf(text.slice(0, count)) < columns) count += 1;
  return count;
}

function alignmentOf(mark) {
  if (mark.endsWith(":")) return mark.startsWith(":") ? "center" : "right";
  return mark.startsWith(":") ? "left" : "";
}

/** Return the places of the cells of a row, without the spaces around them; `\|` does not end a cell. */
function cellsOf(line, offset) {
  const cells = [];
  const first = numSpaces(line) + (line.trimStart().startsWith("|") ? 1 : 0);
  let from = first;
  for (let at = first; at <= line.length; at++) {
    if (at < line.length && (line[at] !== "|" || line[at - 1] === "\\")) continue;
    const text = line.slice(from, at);
    if (at < line.length || text.trim()) {
      const begin = from + numSpaces(text);
      cells.push({ from: offset + begin, to: offset + Math.max(begin, from + text.trimEnd().length) });
    }
    from = at + 1;
  }
  return cells;
}
