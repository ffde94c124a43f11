// What Markdown means inside a block: code, bold, emphasis, strikes, links. Time is linear in the length.

const MAX_OPEN = 32;
const SCHEMES = new Set(["http:", "https:", "mailto:"]);
const SPECIAL = /[\\`*_~![\]]|https?:\/\//g;
const ADDRESS = /https?:\/\/[^\s<>"`|\\^{}[\]]+/y;
const TARGET = /\([ \t\n]*<?((?:[^\s<>()]|\([^\s<>()]*\))*)>?(?:[ \t\n]+"[^"\n]*")?[ \t\n]*\)/y;
const PUNCTUATION = /[\p{P}\p{S}]/u;
const SPACE = /\s/;

/** Return characters of a source as {text, places}: `places[i]` is where character i is in the source. */
export function characters(source, ranges) {
  const places = [];
  let text = "";
  for (const { from, to } of ranges) {
    text += source.slice(from, to);
    for (let place = from; place < to; place++) places.push(place);
  }
  return { text, places };
}

/** Return the address of a link if it is a page or a mail address, else null: scripts, data and paths of this server are text. */
export function safeAddress(text) {
  try {
    const address = new URL(text); // without a base, so that relative ones are none
    return SCHEMES.has(address.protocol) ? address.href : null;
  } catch {
    return null;
  }
}

/**
 * Return nodes: {kind: "text" | "code", from, to} into `text`, {kind: "strong" | "em" | "del" | "a", children, href}.
 * `isOpen`: more is to come, so what is not closed yet counts as closed by the end.
 */
export function parseInline(text, isOpen) {
  const closers = runsOfTicks(text);
  const frames = [{ mark: "", count: 0, nodes: [] }]; // the outermost, and one for each mark that waits to be closed
  const top = () => frames.at(-1);
  const push = (from, to) => {
    const last = top().nodes.at(-1);
    if (last?.kind === "text" && last.to === from) last.to = to;
    else if (to > from) top().nodes.push({ kind: "text", from, to });
  };

  /** Close the frames above a number: their marks were text. */
  const dissolve = (above) => {
    const into = frames[above - 1].nodes;
    for (const { mark, from, count, nodes } of frames.splice(above)) {
      into.push({ kind: "text", from, to: from + count });
      for (const node of nodes) into.push(node);
    }
  };
  const open = (mark, from, count) => {
    if (frames.length > MAX_OPEN) push(from, from + count);
    else frames.push({ mark, from, count, nodes: [] });
  };
  /** Put what the last frame holds into a node of the one below. */
  const wrap = (node) => {
    const { nodes } = frames.pop();
    top().nodes.push({ ...node, children: nodes });
  };
  const kindOf = (mark, count) => (mark === "~" ? "del" : count === 2 ? "strong" : "em");

  /** Close as much as a run of marks can close; return how many of it are left. */
  const close = (mark, count) => {
    while (count) {
      const found = frames.findLastIndex((frame) => frame.mark === mark);
      if (found < 1 || (mark === "~" && (count < 2 || frames[found].count < 2))) break;
      if (frames.slice(found).some((frame) => frame.mark === "[")) break; // a link holds all of a mark's pair, or none
      dissolve(found + 1);
      const taken = Math.min(2, count, top().count);
      const { from, count: waiting } = top();
      const inner = { kind: kindOf(mark, taken) };
      count -= taken;
      wrap(inner);
      if (waiting > taken) frames.push({ mark, from, count: waiting - taken, nodes: [top().nodes.pop()] });
    }
    return count;
  };

  let at = 0;
  while (at < text.length) {
    SPECIAL.lastIndex = at;
    const next = SPECIAL.exec(text)?.index ?? text.length;
    push(at, next);
    at = next;
    const sign = text[at];
    if (sign === undefined) break;
    if (sign === "\\") {
      const isEscape = /[!-/:-@[-`{-~]/.test(text[at + 1] ?? "");
      push(at + Number(isEscape), at + 1 + Number(isEscape));
      at += 1 + Number(isEscape);
    } else if (sign === "`") {
      const length = lengthOf(text, at);
      const end = closers.next(length, at) ?? (isOpen ? text.length : null);
      if (end === null) push(at, at + length);
      else top().nodes.push({ kind: "code", ...trimmed(text, at + length, end) });
      at = end === null ? at + length : Math.min(end + length, text.length);
    } else if (sign === "[") {
      open("[", at, 1);
      at += 1;
    } else if (sign === "]") {
      at += closeLink(at);
    } else if (sign === "h") {
      ADDRESS.lastIndex = at;
      const found = ADDRESS.exec(text)?.[0].replace(/[.,:;!?'*_~)]+$/, "") ?? sign;
      const href = frames.some(({ mark }) => mark === "[") ? null : safeAddress(found);
      if (href) top().nodes.push({ kind: "a", href, children: [{ kind: "text", from: at, to: at + found.length }] });
      else push(at, at + found.length);
      at += found.length;
    } else if (sign === "!") {
      push(at, at + Number(text[at + 1] !== "[")); // a picture is a link to it: nothing is loaded
      at += 1;
    } else {
      const length = lengthOf(text, at);
      const [canOpen, canClose] = flanks(text, at, length);
      const left = canClose ? close(sign, length) : length;
      const from = at + length - left;
      if (left && canOpen && (sign !== "~" || left === 2)) open(sign, from, left);
      else push(from, at + length);
      at += length;
    }
  }

  function closeLink(place) {
    const found = frames.findLastIndex((frame) => frame.mark === "[");
    if (found < 1) {
      push(place, place + 1);
      return 1;
    }
    TARGET.lastIndex = place + 1;
    const target = TARGET.exec(text);
    const href = target && safeAddress(target[1]);
    dissolve(found + 1);
    if (!href) {
      dissolve(found);
      push(place, place + 1);
      return 1;
    }
    wrap({ kind: "a", href });
    return 1 + target[0].length;
  }

  while (frames.length > 1) {
    const { mark, count } = top();
    if (!isOpen || mark === "[" || (mark === "~" ? count !== 2 : count > 2)) {
      dissolve(frames.length - 1);
    } else {
      wrap({ kind: kindOf(mark, count) });
    }
  }
  return frames[0].nodes;
}

function lengthOf(text, at) {
  let end = at;
  while (text[end] === text[at]) end += 1;
  return end - at;
}

/** Return where runs of backticks are, by their length, for one walk from left to right. */
function runsOfTicks(text) {
  const byLength = new Map();
  for (const { 0: run, index } of text.matchAll(/`+/g)) {
    const places = byLength.get(run.length) ?? { all: [], at: 0 };
    byLength.set(run.length, places);
    places.all.push(index);
  }
  return {
    next(length, after) {
      const places = byLength.get(length);
      while (places && places.all[places.at] <= after) places.at += 1;
      return places?.all[places.at] ?? null;
    },
  };
}

/** Leave out one space on both sides of code, with which code begins or ends with a backtick. */
function trimmed(text, from, to) {
  const hasSpaces = to - from > 2 && text[from] === " " && text[to - 1] === " ";
  return hasSpaces ? { from: from + 1, to: to - 1 } : { from, to };
}

/** Return whether a run of marks may open, and may close, by what is on its sides. */
function flanks(text, at, length) {
  const [before, after] = [text[at - 1] ?? " ", text[at + length] ?? " "];
  const isLeft = !SPACE.test(after) && (!PUNCTUATION.test(after) || SPACE.test(before) || PUNCTUATION.test(before));
  const isRight = !SPACE.test(before) && (!PUNCTUATION.test(before) || SPACE.test(after) || PUNCTUATION.test(after));
  if (text[at] !== "_") return [isLeft, isRight];
  return [isLeft && (!isRight || PUNCTUATION.test(before)), isRight && (!isLeft || PUNCTUATION.test(after))];
}
