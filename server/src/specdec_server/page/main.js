// Chat with the model that the server serves, and see what of each answer was drafted.

import { AnswerView } from "./answer.js";
import { get, useKey } from "./api.js";
import { fill, newRun, requestBody } from "./ask.js";
import { $, announce, make } from "./dom.js";
import { showPositions, showSpeed, showStep, stepSummary, verdictText } from "./panel.js";
import { statistics } from "./run.js";
import { limitSettings, readSettings, setUpSettings } from "./settings.js";
import { keepTurns, keptTurns } from "./store.js";

const EXAMPLES = {
  chat: [
    "Write a haiku about the sea, then repeat it word for word.",
    "List the planets of the solar system, each with one fact.",
    "Rewrite this in capital letters: the quick brown fox jumps over the lazy dog.",
  ],
  text: [
    "import os\nimport sys\n\n\ndef read_lines(path):\n",
    "class Stack:\n    def __init__(self):\n",
    "def main():\n    parser = argparse.ArgumentParser(",
  ],
};
const page = { info: null, turns: [], running: null, chosen: null };

async function connect() {
  try {
    page.info = await get("server_info");
  } catch (error) {
    $("served").textContent = "not connected";
    tellError(error);
    return;
  }
  tellError(null);
  $("key-form").hidden = true;
  const { model, has_chat_template: isChat, speculative_config: config } = page.info;
  const how = config ? `drafts by ${config.method}, up to ${config.num_speculative_tokens} tokens a step` : "no drafts";
  $("served").replaceChildren(make("b", {}, model), ` · ${how} · ${page.info.dtype} on ${page.info.device}`);
  document.title = `${model} · specdec`;
  $("docs").hidden = !page.info.has_docs;
  $("message-label").textContent = isChat ? "Message" : "Text to continue";
  limitSettings(page.info);
  showEmpty();
}

function showEmpty() {
  const isChat = page.info?.has_chat_template ?? true;
  $("empty").hidden = page.turns.length > 0 || !page.info;
  $("empty").querySelector("h2").textContent = isChat ? "Ask something" : "Begin a text";
  $("empty-text").textContent =
    (isChat ? "" : "This model has no chat template: it goes on with what you write. ") +
    "Tokens that a draft had guessed, and the model accepted, are coloured: one colour for each proposer, a stronger shade the deeper in the draft.";
  const isCode = page.info?.root === "zoo"; // trained on Python alone
  const buttons = EXAMPLES[isChat && !isCode ? "chat" : "text"].map((text) => {
    const button = make("button", { type: "button" }, text.trimEnd());
    button.addEventListener("click", () => ask(text));
    return make("li", {}, button);
  });
  $("examples").replaceChildren(...buttons);
}

function tellError(error) {
  $("error").hidden = !error;
  $("error").textContent = error ? error.message : "";
  if (error?.status === 401) {
    $("key-form").hidden = false;
    $("key").focus();
  }
}

/** Show a turn; return what fills it. */
function showTurn(turn) {
  const runs = make("div", { class: "runs" });
  const element = make("article", { class: "turn" }, make("h2", { class: "visually-hidden" }, "You"), make("p", { class: "prompt" }, turn.prompt.trimEnd()), runs);
  $("turns").append(element);
  const add = (run, title) => {
    const view = new AnswerView(run, title, choose);
    runs.append(view.element);
    runs.classList.toggle("two", runs.children.length > 1);
    return view;
  };
  return { turn, element, add };
}

function titleOf(run, isCompared) {
  if (!isCompared) return run.isDrafting ? "Answer" : "Answer without drafts";
  return run.isDrafting ? "With drafts" : "Without drafts";
}

function choose(view, segment, isSpoken) {
  if (page.chosen && page.chosen.view !== view) page.chosen.view.move(null);
  page.chosen = { view, segment };
  showStep(view.run, segment);
  if (isSpoken && segment.step !== null) announce(stepSummary(view.run.steps[segment.step], segment));
}

function showPanel(turn) {
  showSpeed(turn?.run, turn?.plain);
  showPositions(turn?.run);
}

async function ask(prompt) {
  if (page.running || !page.info || !prompt.trim()) return;
  const settings = readSettings();
  if (!settings) return;
  tellError(null);
  const turn = { prompt, run: newRun(settings, settings.isDrafting), plain: null };
  page.turns.push(turn);
  $("empty").hidden = true;
  setRunning(new AbortController());
  const shown = showTurn(turn);
  shown.element.scrollIntoView({ block: "nearest" });
  announce("The answer begins");
  try {
    await follow(turn, turn.run, shown.add(turn.run, titleOf(turn.run, settings.isCompared)), settings);
    if (settings.isCompared && turn.run.finish !== "stopped") {
      turn.plain = newRun(settings, false);
      await follow(turn, turn.plain, shown.add(turn.plain, titleOf(turn.plain, true)), settings);
    }
  } catch (error) {
    tellError(error);
  }
  if (!turn.run.steps.length) {
    page.turns.pop();
    shown.element.remove();
    $("message").value ||= prompt;
    showEmpty();
  } else {
    announce(`${summary(turn)} ${turn.run.text}`);
  }
  showPanel(page.turns.at(-1));
  setRunning(null);
  keep();
}

async function follow(turn, run, view, settings) {
  const isChat = page.info.has_chat_template;
  const earlier = page.turns.map((other) => (other === turn ? { prompt: turn.prompt } : other));
  const body = requestBody(earlier, settings, isChat, run.isDrafting);
  let isDue = false;
  const refresh = () => {
    isDue = false;
    view.tell();
    showPanel(turn);
  };
  view.element.classList.add("writing");
  await fill(run, body, isChat, page.running.signal, (segments) => {
    const isAtEnd = atEnd();
    view.append(segments);
    if (isAtEnd) $("turns").scrollTop = $("turns").scrollHeight;
    if (!isDue) {
      isDue = true;
      requestAnimationFrame(refresh);
    }
  }).finally(() => {
    view.element.classList.remove("writing");
    refresh();
  });
}

function summary({ run, plain }) {
  const { tokens, accepted } = statistics(run);
  const speed = run.speed ? `, ${Math.round(run.speed)} tokens per second` : "";
  const same = plain?.finish ? ` ${verdictText(run, plain)}.` : "";
  return `Answer of ${tokens} tokens, ${accepted} from drafts${speed}.${same}`;
}

function atEnd() {
  const turns = $("turns");
  return turns.scrollHeight - turns.scrollTop - turns.clientHeight < 80;
}

function setRunning(controller) {
  page.running = controller;
  $("stop").hidden = !controller;
  $("send").disabled = $("clear").disabled = Boolean(controller);
  $("turns").setAttribute("aria-busy", String(Boolean(controller)));
}

function stop() {
  page.running?.abort();
}

function keep() {
  if (!keepTurns(page.turns)) tellError(new Error("This conversation is too long to outlive a reload of the page."));
}

function clear() {
  page.turns = [];
  page.chosen = null;
  for (const turn of document.querySelectorAll(".turn")) turn.remove();
  tellError(null);
  showPanel(null);
  showStep(null, null);
  showEmpty();
  keep();
  $("message").focus();
  announce("The conversation is cleared");
}

function moveStep(direction) {
  const { view, segment } = page.chosen;
  view.moveToStep(segment.step + direction);
}

function setUp() {
  setUpSettings();
  page.turns = keptTurns();
  for (const turn of page.turns) {
    const { add } = showTurn(turn);
    add(turn.run, titleOf(turn.run, turn.plain));
    if (turn.plain) add(turn.plain, titleOf(turn.plain, true));
  }
  $("turns").scrollTop = $("turns").scrollHeight;
  showPanel(page.turns.at(-1));
  showStep(null, null);
  $("composer").addEventListener("submit", (event) => {
    event.preventDefault();
    const text = $("message").value;
    if (page.running || !page.info || !text.trim()) return;
    $("message").value = "";
    ask(text);
  });
  $("message").addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    $("composer").requestSubmit();
  });
  document.addEventListener("keydown", (event) => event.key === "Escape" && stop());
  $("stop").addEventListener("click", stop);
  $("clear").addEventListener("click", clear);
  $("previous-step").addEventListener("click", () => moveStep(-1));
  $("next-step").addEventListener("click", () => moveStep(1));
  $("key-form").addEventListener("submit", (event) => {
    event.preventDefault();
    useKey($("key").value);
    connect();
  });
  window.addEventListener("pagehide", keep);
  connect();
}

setUp();
