// What is asked of the server: the next message of a conversation, or the continuation of a text.

import { stream } from "./api.js";
import { Run } from "./run.js";

/** Return the body of a request. `turns` are the earlier ones, the last of them without an answer. */
export function requestBody(turns, settings, isChat, isDrafting) {
  const body = {
    temperature: settings.temperature,
    seed: settings.seed,
    max_tokens: settings.maxTokens,
    return_draft_steps: true,
  };
  if (!isDrafting) body.speculative = false;
  if (!isChat) return { ...body, prompt: turns.at(-1).prompt };
  const messages = settings.system ? [{ role: "system", content: settings.system }] : [];
  for (const { prompt, run } of turns) {
    messages.push({ role: "user", content: prompt });
    if (run) messages.push({ role: "assistant", content: run.text });
  }
  return { ...body, messages };
}

/** Fill a run with an answer; `show(segments)` is told of every piece. An answer that is given up has finish `stopped`. */
export async function fill(run, body, isChat, signal, show) {
  try {
    for await (const piece of stream(isChat ? "v1/chat/completions" : "v1/completions", body, signal)) {
      const choice = piece.choices[0];
      if (!choice) continue;
      const delta = choice.delta ?? {};
      show(run.take(choice, (isChat ? delta.content : choice.text) ?? "", delta.reasoning_content ?? ""));
    }
  } catch (error) {
    run.finish = "stopped";
    if (error.name !== "AbortError") throw error;
  }
}

export function newRun(settings, isDrafting) {
  return new Run({ seed: settings.seed, isDrafting });
}
