// Histories of conversations: those without changes are files, the others are made by Python.

const made = new Map();

async function file(name) {
  const answer = await fetch(name);
  if (!answer.ok) throw new Error(`${name}: ${answer.status}`);
  return answer.json();
}

export const about = await file("about.json");

let worker;
let count = 0;
const waiting = new Map();

function ask(question) {
  return new Promise((resolve, reject) => {
    waiting.set(++count, { resolve, reject });
    worker.postMessage({ ...question, number: count });
  });
}

// Resolves to the version of Python when it is there; rejects where it cannot be.
export const ready = !about.pyodide
  ? Promise.reject(new Error("This copy of the site was built without Pyodide: its conversations can be stepped through, not changed."))
  : new Promise((resolve, reject) => {
    worker = new Worker("worker.js", { type: "module" });
    worker.onmessage = ({ data }) => {
      const { resolve: answer, reject: refuse } = waiting.get(data.number);
      waiting.delete(data.number);
      if (data.error) refuse(new Error(data.error)); else answer(data.answer);
    };
    worker.onerror = () => reject(new Error("Python did not start: conversations can be stepped through, not changed."));
    ask({ wheel: about.wheel }).then(resolve, reject);
  });
ready.catch(() => {});

export async function history(name, changes) {
  const key = [name, ...changes].join("/");
  if (!made.has(key)) {
    if (changes.length) await ready;
    made.set(key, changes.length ? JSON.parse(await ask({ name, changes })) : await file(`data/${name}.json`));
  }
  return made.get(key);
}
