// The approval modes of the server: which actions of a conversation wait for a decision, in words.
import { useEffect, useState } from "preact/hooks";
import { call } from "./api.js";

/** The table of the server, read once for a page. @type {Promise<any[]> | null} */
let table = null;

/**
 * The modes: [{name, words, detail, policy, needs_sandbox}]; none until they are here, or where they cannot be read.
 */
export function useModes() {
  const [modes, setModes] = useState([]);
  useEffect(() => {
    table ??= call("GET /api/v1/approval-modes");
    table.then(setModes, () => {
      table = null;
    });
  }, []);
  return modes;
}
