// The panel: how fast, how much was accepted at which depth, and what one step drafted.

import { classesOf, colourOf } from "./colours.js";
import { $, make, number, visible } from "./dom.js";
import { depths, firstDifference, speedUp, statistics } from "./run.js";

const MAX_ROWS = 8;
const SVG = "http://www.w3.org/2000/svg";

/** Show the speed of a run beside that of the run without drafts, if there is one. */
export function showSpeed(run, plain) {
  if (!run) {
    $("speed").replaceChildren(make("p", { class: "hint" }, "Nothing has been written yet."));
    return;
  }
  const { tokens, steps, drafted, accepted } = statistics(run);
  const parts = [figures(run, plain)];
  if (plain?.finish) parts.push(verdict(run, plain));
  if (plain?.finish && tokens !== plain.tokenIds.length) {
    parts.push(make("p", { class: "hint" }, "No speed-up: the answers are of different lengths."));
  }
  if (drafted) parts.push(make("p", { class: "hint" }, `${accepted} of ${drafted} drafted tokens accepted`));
  if (tokens) parts.push(make("p", { class: "hint" }, `${(tokens / steps).toFixed(2)} tokens a step · seed ${run.settings.seed}`));
  $("speed").replaceChildren(...parts);
}

/** Return the speed of a run, and what is known of its drafts, in a line; empty while nothing is. */
export function speedText(run, plain) {
  if (!run?.speed) return "";
  const { drafted, accepted } = statistics(run);
  const ratio = plain ? speedUp(run, plain) : null;
  const words = [`${number(run.speed)} tokens/s`];
  if (ratio) words.unshift(`${ratio.toFixed(1)} times as fast`);
  if (drafted) words.push(`${Math.round((100 * accepted) / drafted)} % of drafts accepted`);
  return words.join(" · ");
}

function figures(run, plain) {
  const found = [[run.isDrafting ? "with drafts" : "without drafts", run.speed, "tokens/s"]];
  if (plain) found.push(["without drafts", plain.speed, "tokens/s"]);
  const ratio = plain ? speedUp(run, plain) : null;
  if (ratio) found.push(["speed-up", ratio, "×"]);
  const list = make("dl", { class: "figures" });
  for (const [name, value, unit] of found) {
    list.append(make("div", {}, make("dt", {}, name), make("dd", {}, value ? number(value) : "–", make("small", {}, ` ${unit}`))));
  }
  return list;
}

/** Return a sentence that says whether two runs are the same. */
export function verdictText(run, plain) {
  const place = firstDifference(run, plain);
  if (place !== null) return `The texts differ from token ${place} on`;
  const [count, other] = [run.tokenIds.length, plain.tokenIds.length];
  if (count === other) return `Equal: the same ${count} tokens`;
  return `Equal as far as both go, ${Math.min(count, other)} tokens`;
}

function verdict(run, plain) {
  const isSame = firstDifference(run, plain) === null;
  return make("p", { class: isSame ? "verdict" : "verdict differs" }, `${isSame ? "✓" : "≠"} ${verdictText(run, plain)}`);
}

/** Show the share of steps whose draft was accepted at each depth, and what each proposer did. */
export function showPositions(run) {
  const found = run ? statistics(run) : { drafts: 0 };
  if (!found.drafts) {
    const why = run ? "Nothing was drafted." : "Shares of the steps with a draft.";
    $("positions").replaceChildren(make("p", { class: "hint" }, why));
    return;
  }
  const deepest = found.byDepth.findLastIndex((accepted) => accepted > 0);
  const shown = found.byDepth.slice(0, Math.min(deepest + 2, MAX_ROWS)); // one row of none says that no deeper one was accepted
  const rows = shown.map((accepted, index) => {
    const share = accepted / found.drafts;
    return make(
      "tr", {},
      make("th", { scope: "row" }, String(index + 1)),
      make("td", { class: "bar" }, bar(share)),
      make("td", {}, `${Math.round(100 * share)} %`),
    );
  });
  const head = make("tr", {}, ...["Depth", "Share", "Accepted"].map((name) => make("th", { scope: "col" }, name)));
  const table = make("table", { class: "positions" }, make("thead", { class: "visually-hidden" }, head), make("tbody", {}, ...rows));
  const proposers = make("ul", { class: "proposers" });
  for (const [name, counts] of found.byProposer) {
    const shades = [1, 2, 3, 4].map((depth) => make("span", { class: `token ${classesOf(name, depth)}` }, String(depth)));
    const swatch = make("span", { class: "swatch", "aria-hidden": "true" }, ...shades);
    proposers.append(make("li", {}, swatch, make("b", {}, name), ` ${counts.accepted} of ${counts.drafted}`));
  }
  $("positions").replaceChildren(table, proposers);
}

function bar(share) {
  const [svg, full, part] = ["svg", "rect", "rect"].map((name) => document.createElementNS(SVG, name));
  svg.setAttribute("aria-hidden", "true");
  for (const [rect, kind, width] of [[full, "full", "100%"], [part, "part", `${100 * share}%`]]) {
    for (const [name, value] of Object.entries({ class: kind, width, height: "100%", rx: "2" })) rect.setAttribute(name, value);
    svg.append(rect);
  }
  return svg;
}

/** Show the draft of a step as a tree, with what the target made of it. */
export function showStep(run, segment) {
  const index = segment?.step ?? null;
  const step = index === null ? null : run.steps[index];
  $("previous-step").disabled = !(index > 0);
  $("next-step").disabled = !step || index >= run.steps.length - 1;
  $("step-title").textContent = step ? `Step ${index + 1} of ${run.steps.length}` : "Step";
  if (!step) {
    $("step").replaceChildren(make("p", { class: "hint" }, "Point at or tap a token, or move to it with the arrow keys, to see what its step drafted."));
    return;
  }
  $("step").replaceChildren(make("p", { class: "summary" }, stepSummary(step, segment)), tree(step, segment));
}

/** Return what a step did, and what the chosen token is in it, in words. */
export function stepSummary(step, segment) {
  const count = step.draft_token_ids.length;
  if (!count) return "Nothing was drafted; the token is the target’s own.";
  const shape = step.parents.every((parent, node) => parent === node - 1) ? "a chain" : "a tree";
  const one = count === 1;
  const accepted = step.accepted.length ? `${step.accepted.length} accepted` : "none accepted";
  const what = segment.depth ? `was drafted at depth ${segment.depth}` : "is the target’s own";
  return `${step.proposer} drafted ${one ? "one token" : `${shape} of ${count} tokens`}: ${accepted}. “${visible(segment.text)}” ${what}.`;
}

/** Return nested lists: each drafted token under the one before it, and the target's own where it continued. */
function tree(step, segment) {
  const depthOf = depths(step);
  const accepted = new Set(step.accepted);
  const own = step.tokens.length > step.accepted.length ? step.tokens.at(-1) : null;
  const end = step.accepted.at(-1) ?? -1;
  const children = (parent) => step.parents.map((_, node) => node).filter((node) => step.parents[node] === parent);
  const under = (parent) => {
    const items = children(parent).sort((a, b) => accepted.has(b) - accepted.has(a)).map((node) => {
      const stands = accepted.has(node);
      const isHere = stands && depthOf[node] === segment.depth;
      const classes = stands ? classesOf(step.proposer, depthOf[node]) : `rejected ${colourOf(step.proposer)}`;
      return entry(step.draft_tokens[node], classes, stands ? "accepted" : "rejected", isHere, under(node));
    });
    if (own !== null && parent === end) {
      items.push(entry(own, "own", children(parent).length ? "the target’s instead" : "the target’s, next", segment.depth === 0, []));
    }
    return items.length ? [make("ul", {}, ...items)] : [];
  };
  const [lists] = [under(-1)];
  return make("div", { class: "tree", tabindex: "0", role: "region", "aria-label": "Draft of the step" }, ...lists);
}

function entry(text, classes, fate, isHere, inner) {
  const mark = { accepted: "✓", rejected: "✗" }[fate] ?? "→";
  const token = make("span", { class: `token ${classes} ${isHere ? "cursor" : ""}` }, visible(text));
  const word = make("span", { class: "fate" }, `${mark} ${fate}`);
  return make("li", {}, make("span", { class: "node" }, token, word), ...inner);
}
