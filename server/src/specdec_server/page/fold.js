// The panel on a narrow screen: folded away behind a line that says the most important of it.

import { $ } from "./dom.js";

export function setUpFold() {
  $("fold").addEventListener("click", () => setOpen($("fold").ariaExpanded !== "true"));
}

export function setOpen(isOpen) {
  $("fold").ariaExpanded = String(isOpen);
  $("main").classList.toggle("unfolded", isOpen);
}

/** Say something in the line. */
export function summarise(text) {
  $("fold").textContent = text || "Drafts and settings";
}
