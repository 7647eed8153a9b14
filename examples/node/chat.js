// Streams an answer to the terminal: node chat.js DESCRIPTOR_SET ADDRESS MODEL QUESTION
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
// Of dns:///NAME:PORT all addresses are used, in turn.
const client = new InferenceService(address, grpc.credentials.createInsecure(), {
  "grpc.service_config": JSON.stringify({ loadBalancingConfig: [{ round_robin: {} }] }),
  "grpc.dns_min_time_between_resolutions_ms": 1000,
});

const request = {
  context: { model },
  messages: [{ role: "user", content: question }],
  sampling: { temperature: 0, max_tokens: 128 },
};
try {
  // A call without a deadline waits for ever.
  for await (const response of client.chat(request, { deadline: Date.now() + 60_000 })) {
    switch (response.event) {
      case "delta":
        process.stdout.write(response.delta.text);
        break;
      case "finished": {
        const usage = response.finished.usage;
        console.log(`\n(${usage.prompt_tokens} + ${usage.output_tokens} tokens)`);
      }
    }
  }
} catch (error) {
  console.error(`${grpc.status[error.code] ?? "error"}: ${error.details ?? error.message}`);
  process.exitCode = 1;
} finally {
  client.close();
}
