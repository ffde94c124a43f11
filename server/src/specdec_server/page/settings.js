// The form of settings.

import { $ } from "./dom.js";
import { keepSettings, keptSettings } from "./store.js";

/** Fill the form with what was kept, and keep what is changed. */
export function setUpSettings() {
  const form = $("settings");
  for (const [name, value] of Object.entries(keptSettings())) {
    const field = form.elements[name];
    if (field) field[field.type === "checkbox" ? "checked" : "value"] = value;
  }
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("input", () => {
    showWhatApplies();
    keepSettings(values());
  });
}

/** Show what the server can do: drafts, conversations. */
export function limitSettings(info) {
  const form = $("settings");
  const canDraft = info.speculative_config !== null;
  form.elements.speculation.disabled = !canDraft;
  if (!canDraft) form.elements.speculation.checked = false;
  $("system-label").hidden = !info.has_chat_template;
  showWhatApplies();
}

/** Return the settings; null, with the field pointed at, if one is wrong. */
export function readSettings() {
  if (!$("settings").reportValidity()) return null;
  const { speculation, compare, temperature, maxTokens, seed, system } = values();
  return {
    isDrafting: speculation,
    isCompared: speculation && compare,
    temperature: Number(temperature),
    maxTokens: Number(maxTokens),
    seed: seed === "" ? Math.floor(Math.random() * 2 ** 31) : Number(seed),
    system: system.trim(),
  };
}

function values() {
  const { elements } = $("settings");
  const found = {};
  for (const name of ["speculation", "compare"]) found[name] = elements[name].checked;
  for (const name of ["temperature", "maxTokens", "seed", "system"]) found[name] = elements[name].value;
  return found;
}

function showWhatApplies() {
  const { elements } = $("settings");
  elements.compare.disabled = elements.speculation.disabled || !elements.speculation.checked;
}
