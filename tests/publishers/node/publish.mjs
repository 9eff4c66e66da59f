// Publishes what stdin asks for, one JSON document: { kafka, topic, keys, records: [...] }; node publish.mjs.
// A record with `email` is a request to be sealed; any other is published as it is. Prints where each one lies.

import { readFileSync } from "node:fs";
import kafkajs from "kafkajs";
import { SOURCE, canonical, headers, request } from "./contract.mjs";

const asked = JSON.parse(readFileSync(0, "utf8"));
const held = JSON.parse(readFileSync(asked.keys, "utf8"));

async function message(given) {
  const record = given.email === undefined ? given : await request(held, given);
  return { key: record.intent_id, value: canonical(record), headers: headers(record) };
}

const kafka = new kafkajs.Kafka({
  clientId: SOURCE,
  brokers: [asked.kafka],
  logLevel: kafkajs.logLevel.ERROR,
});
const producer = kafka.producer({
  createPartitioner: kafkajs.Partitioners.DefaultPartitioner,
  idempotent: true,
  maxInFlightRequests: 1,
});
await producer.connect();
try {
  for (const given of asked.records) {
    const [at] = await producer.send({ topic: asked.topic, acks: -1, messages: [await message(given)] });
    console.log(JSON.stringify({ partition: at.partition, offset: Number(at.baseOffset) }));
  }
} finally {
  await producer.disconnect();
}
