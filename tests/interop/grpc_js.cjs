// Cases with @grpc/grpc-js, which stands on Node's own HTTP/2:
//   node grpc_js.cjs DESCRIPTORS ADDRESS
// Prints a line per case; exits with 1 if one failed.
const fs = require("node:fs");
const assert = require("node:assert/strict");
const grpc = require("@grpc/grpc-js");
const loader = require("@grpc/proto-loader");

const [descriptors, address] = process.argv.slice(2);
const definition = loader.loadFileDescriptorSetFromBuffer(fs.readFileSync(descriptors), {
  longs: Number,
  enums: String,
  oneofs: true,
  defaults: true,
});
const packages = grpc.loadPackageDefinition(definition);
const { InferenceService } = packages.baton.v1;
const status = grpc.status;
const plain = grpc.credentials.createInsecure();
const client = new InferenceService(address, plain);
const question = [{ role: "user", content: "Tell me a story about a fox" }];
let model = "";
let failures = 0;

const unary = (stub, method, request, metadata = new grpc.Metadata(), options = {}) =>
  new Promise((resolve, reject) => {
    stub[method](request, metadata, options, (error, answer) => (error ? reject(error) : resolve(answer)));
  });

const chat = (maxTokens, more = {}) => ({
  context: { model },
  messages: question,
  sampling: { max_tokens: maxTokens, ignore_eos: true, temperature: 0 },
  ...more,
});

// All events of a stream; `each` sees every one as it comes.
const events = (call, each = () => {}) =>
  new Promise((resolve, reject) => {
    const seen = [];
    call.on("data", (event) => {
      seen.push(event);
      each(event);
    });
    call.on("end", () => resolve(seen));
    call.on("error", (error) => reject(Object.assign(error, { seen })));
  });

const tokens = (seen) => seen.flatMap((event) => event.delta?.token_ids ?? []).length;
const after = (milliseconds) => ({ deadline: Date.now() + milliseconds });

async function refused(promise, code) {
  const error = await promise.then(
    () => assert.fail("it succeeded"),
    (caught) => caught,
  );
  assert.equal(status[error.code], status[code], error.message);
  return error;
}

// proto-loader describes messages but does not read them alone: protobufjs, which it stands on, does.
const protobuf = require("protobufjs");
const { FileDescriptorSet } = require("protobufjs/ext/descriptor");
const root = protobuf.Root.fromDescriptor(FileDescriptorSet.decode(fs.readFileSync(descriptors)));
const decode = (name, bytes) => root.lookupType(name).decode(bytes);

const cases = {
  async "unary"() {
    const { models } = await unary(client, "ListModels", {});
    model = models[0].name;
    const { token_ids } = await unary(client, "Tokenize", { model, text: "Hello there" });
    assert.ok(token_ids.length > 0);
    return `${model}, ${token_ids.length} tokens`;
  },
  async "server streaming"() {
    const seen = await events(client.Chat(chat(32), after(30000)));
    assert.equal(seen[0].event, "started");
    assert.equal(tokens(seen), 32);
    assert.equal(seen.at(-1).finished.usage.output_tokens, 32);
    return `${seen.length} events`;
  },
  async "bidirectional streaming (Session)"() {
    const call = client.Session(after(30000));
    for (let id = 1; id <= 8; id++) {
      call.write({ starts: [{ id, chat: chat(16) }] });
    }
    let finished = 0;
    let columns = 0;
    await events(call, (message) => {
      columns += message.deltas?.token_ids.length ?? 0;
      finished += message.events.filter((one) => one.event === "finished").length;
      columns += message.events.flatMap((one) => one.delta?.token_ids ?? []).length;
      if (finished === 8) call.end();
    });
    assert.equal(columns, 8 * 16);
    return "8 requests on one stream";
  },
  async "deadline"() {
    const began = Date.now();
    const error = await refused(events(client.Chat(chat(4000), after(300))), status.DEADLINE_EXCEEDED);
    assert.ok(Date.now() - began < 5000);
    return `after ${Date.now() - began} ms, ${tokens(error.seen)} tokens`;
  },
  async "cancel"() {
    const call = client.Chat(chat(4000), after(30000));
    const error = await refused(
      events(call, (event) => event.delta && call.cancel()),
      status.CANCELLED,
    );
    return `after ${tokens(error.seen)} tokens`;
  },
  async "metadata"() {
    const metadata = new grpc.Metadata();
    metadata.set("x-request-id", "interop-js-1");
    metadata.set("x-anything-bin", Buffer.from([0, 255, 7]));
    const call = client.Chat(chat(1), metadata, after(30000));
    const [started] = await events(call);
    assert.equal(started.started.request_id, "interop-js-1");
    return started.started.request_id;
  },
  async "error details"() {
    const error = await refused(events(client.Chat(chat(4, { messages: [] }))), status.INVALID_ARGUMENT);
    const packed = error.metadata.get("grpc-status-details-bin")[0];
    const details = decode("google.rpc.Status", packed).details;
    const info = details.find((one) => (one.typeUrl ?? one.type_url).endsWith("google.rpc.ErrorInfo"));
    const { reason, domain } = decode("google.rpc.ErrorInfo", info.value);
    assert.equal(domain, "baton");
    return `${reason}: ${error.details}`;
  },
  async "gzip"() {
    const zipped = new InferenceService(address, plain, {
      "grpc.default_compression_algorithm": grpc.compressionAlgorithms.gzip,
    });
    const text = "the same words again ".repeat(500);
    const { token_ids } = await unary(zipped, "Tokenize", { model, text });
    assert.ok(token_ids.length > 1000);
    zipped.close();
    return `${text.length} bytes, ${token_ids.length} tokens`;
  },
  async "unimplemented method"() {
    const missing = new grpc.Client(address, plain);
    const same = (value) => value;
    const call = new Promise((resolve, reject) =>
      missing.makeUnaryRequest("/baton.v1.InferenceService/Nothing", same, same, Buffer.alloc(0), (error, answer) =>
        error ? reject(error) : resolve(answer),
      ),
    );
    const error = await refused(call, status.UNIMPLEMENTED);
    missing.close();
    return error.details;
  },
  async "a message over the limit"() {
    const text = "x".repeat(5 * 1024 * 1024);
    const error = await refused(
      unary(client, "Tokenize", { model, text }),
      status.RESOURCE_EXHAUSTED,
    );
    return error.details;
  },
  async "health"() {
    const health = new packages.grpc.health.v1.Health(address, plain);
    const { status: now } = await unary(health, "Check", { service: "baton.v1.InferenceService" });
    assert.equal(now, "SERVING");
    await refused(unary(health, "Check", { service: "no.Service" }), status.NOT_FOUND);
    const watch = health.Watch({ service: "" });
    const first = await new Promise((resolve, reject) => watch.once("data", resolve).once("error", reject));
    assert.equal(first.status, "SERVING");
    watch.on("error", () => {});
    watch.cancel();
    health.close();
    return now;
  },
  async "reflection"() {
    const { ServerReflection } = packages.grpc.reflection.v1alpha;
    const reflection = new ServerReflection(address, plain);
    const call = reflection.ServerReflectionInfo();
    call.write({ list_services: "" });
    const answer = await new Promise((resolve, reject) => call.once("data", resolve).once("error", reject));
    call.end();
    const names = answer.list_services_response.service.map((one) => one.name);
    assert.ok(names.includes("baton.v1.InferenceService"));
    reflection.close();
    return names.join(" ");
  },
  async "64 streams at once"() {
    const began = Date.now();
    const all = await Promise.all(Array.from({ length: 64 }, () => events(client.Chat(chat(64), after(60000)))));
    assert.ok(all.every((seen) => tokens(seen) === 64));
    return `${64 * 64} tokens in ${Date.now() - began} ms`;
  },
  async "a slow reader"() {
    const call = client.Chat(chat(512), after(60000));
    let paused = false;
    const seen = await events(call, () => {
      if (!paused) {
        paused = true;
        call.pause();
        setTimeout(() => call.resume(), 500);
      }
    });
    assert.equal(tokens(seen), 512);
    return `${seen.length} events`;
  },
};

(async () => {
  for (const [name, run] of Object.entries(cases)) {
    try {
      console.log(`ok    grpc-js   ${name}: ${await run()}`);
    } catch (error) {
      failures += 1;
      console.log(`FAIL  grpc-js   ${name}: ${error.stack}`);
    }
  }
  client.close();
  process.exit(failures ? 1 : 0);
})();
