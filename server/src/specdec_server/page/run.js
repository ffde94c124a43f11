// One answer as it comes: its text cut into tokens, the steps that made them, and how fast they came.

/**
 * Puts the text of a stream and the tokens of its steps together. Parsers of the server may leave tokens out of the text
 * (marks of reasoning, of calls), so a token that the text does not continue with is passed over.
 */
export class Run {
  /** @param {object} [kept] what `toJSON` returned. */
  constructor(kept = {}) {
    this.segments = kept.segments ?? []; // {text, step, depth, isReasoning}: depth 0 is the target's own token
    this.steps = kept.steps ?? [];
    this.finish = kept.finish ?? null;
    this.reason = kept.reason ?? null; // why it ended, of an error
    this.settings = kept.settings ?? {}; // as asked for: temperature, seed, maxTokens, system
    this.isDrafting = kept.isDrafting ?? true;
    this.waiting = [];
  }

  /** Take in a choice of a piece, and its text and reasoning; return the segments that are new. */
  take(choice, text, reasoning = "") {
    for (const step of choice.draft_steps ?? []) {
      const index = this.steps.push(step) - 1;
      step.tokens.forEach((token, place) => {
        this.waiting.push({ text: token, step: index, depth: place < step.accepted.length ? place + 1 : 0 });
      });
    }
    if (choice.finish_reason) this.finish = choice.finish_reason;
    if (choice.finish_reason === "error") this.reason = choice.stop_reason;
    const thought = this.place(reasoning).map((segment) => ({ ...segment, isReasoning: true }));
    const found = [...thought, ...this.place(text)];
    this.segments.push(...found);
    return found;
  }

  place(text) {
    const found = [];
    while (text && this.waiting.length) {
      const token = this.waiting[0];
      if (token.text && text.startsWith(token.text)) {
        found.push(token);
        text = text.slice(token.text.length);
        this.waiting.shift();
      } else if (token.text.startsWith(text)) {
        found.push({ ...token, text });
        token.text = token.text.slice(text.length);
        return found;
      } else {
        this.waiting.shift();
      }
    }
    if (text) found.push({ text, step: null, depth: 0 });
    return found;
  }

  /** Tokens per second between the first step and the last one, by the server's clock; null where there is one step. */
  get speed() {
    const [first, last] = [this.steps[0], this.steps.at(-1)];
    if (!last || last.time <= first.time) return null;
    return (this.tokenIds.length - first.token_ids.length) / (last.time - first.time);
  }

  /** The text without reasoning, which models are not told again. */
  get text() {
    return this.segments.filter(({ isReasoning }) => !isReasoning).map(({ text }) => text).join("");
  }

  get tokenIds() {
    return this.steps.flatMap((step) => step.token_ids);
  }

  toJSON() {
    const { segments, steps, finish, reason, settings, isDrafting } = this;
    return { segments, steps, finish, reason, settings, isDrafting };
  }
}

/** Return the depth of each drafted token of a step, 1 for the first. */
export function depths(step) {
  const found = [];
  step.parents.forEach((parent) => found.push(parent < 0 ? 1 : found[parent] + 1));
  return found;
}

/** Return what drafts did: counts over steps, at each depth, and for each proposer. */
export function statistics(run) {
  const total = { steps: run.steps.length, tokens: 0, drafts: 0, drafted: 0, accepted: 0 };
  const byDepth = [];
  const byProposer = new Map();
  for (const step of run.steps) {
    total.tokens += step.token_ids.length;
    if (!step.draft_token_ids.length) continue;
    const deepest = Math.max(...depths(step));
    while (byDepth.length < deepest) byDepth.push(0);
    for (let depth = 0; depth < step.accepted.length; depth++) byDepth[depth] += 1;
    const of = byProposer.get(step.proposer) ?? { drafts: 0, drafted: 0, accepted: 0 };
    byProposer.set(step.proposer, of);
    for (const counts of [total, of]) {
      counts.drafts += 1;
      counts.drafted += step.draft_token_ids.length;
      counts.accepted += step.accepted.length;
    }
  }
  return { ...total, byDepth, byProposer };
}

/** Return the number of the first token in which two runs differ; null if they are the same as far as both go. */
export function firstDifference(run, other) {
  const [ids, others] = [run.tokenIds, other.tokenIds];
  const place = ids.findIndex((id, index) => index < others.length && id !== others[index]);
  return place < 0 ? null : place + 1;
}

/** Return how many times as fast a run was as another; null unless both ended, with the same number of tokens. */
export function speedUp(run, other) {
  const isWhole = run.finish && other.finish && run.tokenIds.length === other.tokenIds.length;
  return isWhole && run.speed && other.speed ? run.speed / other.speed : null;
}
