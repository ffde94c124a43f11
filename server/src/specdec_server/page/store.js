// What outlives a reload: the conversation and the settings, in the tab's own storage.

import { Run } from "./run.js";

const TURNS = "specdec.turns";
const SETTINGS = "specdec.settings";

/** Return the turns: {prompt, run, plain}; `plain` is the run without drafts, or null. */
export function keptTurns() {
  const kept = read(TURNS) ?? [];
  return kept.map(({ prompt, run, plain }) => ({ prompt, run: new Run(run), plain: plain && new Run(plain) }));
}

/** Keep the turns that have an answer; return whether there was room for them. An answer that still comes ends here. */
export function keepTurns(turns) {
  const kept = (run) => run && { ...run.toJSON(), finish: run.finish ?? "stopped" };
  const answered = turns.filter(({ run }) => run.steps.length);
  return write(TURNS, answered.map(({ prompt, run, plain }) => ({ prompt, run: kept(run), plain: kept(plain) })));
}

export function keptSettings() {
  return read(SETTINGS) ?? {};
}

export function keepSettings(settings) {
  write(SETTINGS, settings);
}

function read(name) {
  try {
    return JSON.parse(sessionStorage.getItem(name));
  } catch {
    return null;
  }
}

function write(name, value) {
  try {
    sessionStorage.setItem(name, JSON.stringify(value));
    return true;
  } catch {
    return false;
  }
}
