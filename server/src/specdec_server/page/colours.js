// Which colour a proposer has: the order in which they are first seen on this page.

const NUM_COLOURS = 5;
const MAX_SHADE = 6;
const seen = [];

/** Return the classes of a token that a proposer drafted at a depth; none for the target's own. */
export function classesOf(proposer, depth) {
  if (!depth) return "";
  return `drafted ${colourOf(proposer)} depth-${Math.min(depth, MAX_SHADE)}`;
}

/** Return the class of a proposer's colour. */
export function colourOf(proposer) {
  let place = seen.indexOf(proposer);
  if (place < 0) place = seen.push(proposer) - 1;
  return `colour-${place % NUM_COLOURS}`;
}
