// Runs culm in the reader's browser: Pyodide is CPython as WebAssembly, and both come from this site.

import { loadPyodide } from "./pyodide/pyodide.mjs";

let told; // the Python function that makes a history

async function begin({ wheel }) {
  const python = await loadPyodide({
    indexURL: new URL("pyodide/", import.meta.url).href,
    env: { HOME: "/home/pyodide", PYTHONHASHSEED: "0" },
  });
  for (const [file, form] of [[wheel, "wheel"], ["playground.zip", "zip"]]) {
    const answer = await fetch(new URL(file, import.meta.url));
    if (!answer.ok) throw new Error(`${file}: ${answer.status}`);
    python.unpackArchive(await answer.arrayBuffer(), form);
  }
  told = python.runPython("from playground.history import told; told");
  return python.runPython("import sys; sys.version.split()[0]");
}

onmessage = async ({ data }) => {
  try {
    const answer = data.wheel ? await begin(data) : told(data.name, data.changes);
    postMessage({ number: data.number, answer });
  } catch (error) {
    const lines = String(error.message || error).trim().split("\n");
    postMessage({ number: data.number, error: lines[lines.length - 1] });
  }
};
