// Streams an answer to the terminal over gRPC, without generated code:
//
//   node chat.js DESCRIPTOR_SET ADDRESS MODEL QUESTION
//
// `make dist` writes the descriptor set. BATON_API_KEY: for a frontend that requires a key.
import { readFileSync } from "node:fs";
import grpc from "@grpc/grpc-js";
import protoLoader from "@grpc/proto-loader";

const [descriptorSet, address, model, question] = process.argv.slice(2);
if (question === undefined) {
  console.error("usage: node chat.js DESCRIPTOR_SET ADDRESS MODEL QUESTION");
  process.exit(2);
}

// Fields keep the names of the protos: max_tokens, not maxTokens.
const definitions = protoLoader.loadFileDescriptorSetFromBuffer(readFileSync(descriptorSet), {
  defaults: true,
  longs: Number,
  enums: String,
  oneofs: true, // `event` names the field that is set
});
const { InferenceService } = grpc.loadPackageDefinition(definitions).baton.v1;
// With the address dns:///NAME:PORT, calls go to all addresses of the name in turn.
const client = new InferenceService(address, grpc.credentials.createInsecure(), {
  "grpc.service_config": JSON.stringify({ loadBalancingConfig: [{ round_robin: {} }] }),
  "grpc.dns_min_time_between_resolutions_ms": 1000,
});

const metadata = new grpc.Metadata();
if (process.env.BATON_API_KEY) {
  metadata.set("authorization", `Bearer ${process.env.BATON_API_KEY}`);
}
const request = {
  context: { model },
  messages: [{ role: "user", content: question }],
  sampling: { temperature: 0, max_tokens: 128 },
};
try {
  // Without a deadline, a call waits forever.
  const deadline = Date.now() + 60_000;
  for await (const response of client.chat(request, metadata, { deadline })) {
    switch (response.event) {
      case "delta":
        process.stdout.write(response.delta.text);
        break;
      case "finished": {
        const usage = response.finished.usage;
        console.log(`\n(${usage.prompt_tokens} + ${usage.output_tokens} tokens)`);
        break;
      }
    }
  }
} catch (error) {
  console.error(`${grpc.status[error.code] ?? "error"}: ${error.details ?? error.message}`);
  process.exitCode = 1;
} finally {
  client.close();
}
