// A peer of Secure Scuttlebutt on secret-stack, ssb-db2 and ssb-ebt, driven by lines of JSON.
//
// Its argument: {"path", "seed" (hex, 32 bytes), "port", "caps" (base64), "history", "ebt"}.
// It says {"event": "listening", "id", "port"}, and answers each line {"op", "call", ...} with
// {"call", "result"} or {"call", "error"}.  The end of its input ends it.

const config = JSON.parse(process.argv[2]);
const modules = process.cwd() + "/node_modules/";
const load = (name) => require(require.resolve(name, { paths: [modules] }));

const ssbKeys = load("ssb-keys");
const pull = load("pull-stream");
const { where, author, toPullStream } = load("ssb-db2/operators");

const say = (fields) => process.stdout.write(JSON.stringify(fields) + "\n");

let stack = load("secret-stack")({ caps: { shs: config.caps } })
  .use(load("ssb-db2/core"))
  .use(load("ssb-classic"))
  .use(load("ssb-db2/compat/ebt"));
if (config.ebt !== false) stack = stack.use(load("ssb-ebt"));
if (config.history) stack = stack.use(load("ssb-db2/compat/history-stream"));

const keys = ssbKeys.generate("ed25519", Buffer.from(config.seed, "hex"));
const peer = stack({
  path: config.path,
  keys,
  port: config.port,
  timeout: 60000,
  connections: {
    incoming: { net: [{ scope: "device", transform: "shs", port: config.port, host: "127.0.0.1" }] },
    outgoing: { net: [{ transform: "shs" }] },
  },
});

peer.on("rpc:connect", (rpc, isClient) => {
  say({ event: "connected", peer: rpc.id, isClient });
  rpc.on("closed", () => say({ event: "disconnected", peer: rpc.id }));
});

const published = (content) =>
  new Promise((resolve, reject) =>
    peer.db.create({ keys, content }, (error, message) => (error ? reject(error) : resolve(message.key)))
  );

const collect = (source) =>
  new Promise((resolve, reject) =>
    pull(source, pull.collect((error, found) => (error ? reject(error) : resolve(found))))
  );

const called = (method, ...args) =>
  new Promise((resolve, reject) =>
    method(...args, (error, result) => (error ? reject(error) : resolve(result)))
  );

const connections = new Map();

const ops = {
  async publish({ contents }) {
    const keys = [];
    for (const content of contents) keys.push(await published(content));
    return keys;
  },
  async request({ feed, value }) {
    peer.ebt.request(feed, value);
  },
  async block({ from, to, value }) {
    peer.ebt.block(from, to, value);
  },
  async dial({ port, peer: id }) {
    const key = id.slice(1).replace(".ed25519", "");
    const rpc = await called(peer.connect, `net:127.0.0.1:${port}~shs:${key}`);
    connections.set(rpc.id, rpc);
  },
  async hang_up({ peer: id }) {
    await called((done) => connections.get(id).close(true, done));
  },
  async remote({ peer: id, type, name, args }) {
    const rpc = connections.get(id);
    const method = name.reduce((inner, part) => inner[part], rpc);
    return type === "source" ? collect(method(...args)) : called(method, ...args);
  },
  async clock() {
    return called(peer.getVectorClock);
  },
  async messages({ feed }) {
    const found = await collect(peer.db.query(where(author(feed)), toPullStream()));
    return found.map(({ key, value }) => ({ key, value }));
  },
  async status({ feed }) {
    return peer.ebt.peerStatus(feed);
  },
};

require("readline")
  .createInterface({ input: process.stdin })
  .on("line", async (line) => {
    const { op, call, ...args } = JSON.parse(line);
    try {
      say({ call, result: (await ops[op](args)) ?? null });
    } catch (error) {
      say({ call, error: String(error && error.message) });
    }
  })
  .on("close", () => process.exit(0));

peer.getVectorClock(() => say({ event: "listening", id: peer.id, port: config.port }));
