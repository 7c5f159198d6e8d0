// Made by `agentctl hook install opencode`. `agentctl hook remove opencode` deletes it.
// Asks the inbox of an agent server beside the terminal: the first answer wins. One process asks for each question, so that
// no server, no key and no patience stands here.
import { spawn } from "node:child_process";

const COMMAND = ["agentctl", "hook", "opencode"];
const GATE = false;

export const Inbox = async ({ client, directory }) => {
  const questions = new Map(); // by the id of a question: its process
  const calls = new Map(); // by the id of a call: its arguments

  const hook = (event) => {
    const child = spawn(COMMAND[0], COMMAND.slice(1), { stdio: ["pipe", "pipe", "ignore"], cwd: directory });
    let output = "";
    child.stdout.on("data", (data) => (output += data));
    child.stdin.on("error", () => {});
    child.stdin.write(`${JSON.stringify({ cwd: directory, ...event })}\n`);
    const answer = new Promise((resolve) => {
      child.on("error", () => resolve({}));
      child.on("close", () => {
        try {
          resolve(JSON.parse(output || "{}"));
        } catch {
          resolve({});
        }
      });
    });
    return { child, answer };
  };
  const tell = (event) => hook(event).child.stdin.end();

  const ask = async ({ id, sessionID, permission, metadata, patterns, tool }) => {
    const call = calls.get(tool?.callID);
    const { child, answer } = hook({
      hook_event_name: "ask",
      session_id: sessionID,
      tool_name: call?.tool ?? permission,
      tool_input: call?.args ?? { ...metadata, patterns },
      complete: Boolean(call),
    });
    questions.set(id, child);
    const { reply, message, notice } = await answer;
    questions.delete(id);
    if (notice) client.tui.showToast({ body: { message: notice, variant: "warning" } }).catch(() => {});
    if (!reply) return;
    await client._client.post({
      url: "/permission/{requestID}/reply",
      path: { requestID: id },
      body: { reply, ...(message ? { message } : {}) },
      headers: { "Content-Type": "application/json" },
    });
  };

  return {
    event: async ({ event: { type, properties } }) => {
      // Not awaited: an event hook that waits would hold up the events after it.
      if (type === "permission.asked") ask(properties).catch(() => {});
      if (type === "permission.replied")
        questions.get(properties.requestID)?.stdin.end(`${JSON.stringify({ replied: properties.reply })}\n`);
      if (type === "session.idle") tell({ hook_event_name: "turn", session_id: properties.sessionID });
    },
    "chat.message": async ({ sessionID }, { parts }) => {
      const prompt = parts
        .filter((part) => part.type === "text" && !part.synthetic)
        .map((part) => part.text)
        .join("\n");
      if (prompt) tell({ hook_event_name: "prompt", session_id: sessionID, prompt });
    },
    "tool.execute.before": async ({ tool, sessionID, callID }, { args }) => {
      calls.set(callID, { tool, args });
      if (!GATE) return;
      const { answer } = hook({ hook_event_name: "gate", session_id: sessionID, tool_name: tool, tool_input: args });
      const { reply, message } = await answer;
      if (reply !== "once") throw new Error(message ?? "The inbox was not asked");
    },
    "tool.execute.after": async ({ tool, sessionID, callID }, { output }) => {
      const args = calls.get(callID)?.args ?? {};
      calls.delete(callID);
      tell({ hook_event_name: "call", session_id: sessionID, tool_name: tool, tool_input: args, result: output });
    },
  };
};
