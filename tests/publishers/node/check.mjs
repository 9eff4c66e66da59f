// Checks the vectors of the contract with Node's own code: node check.mjs vectors.json. Exit 1 names what differs.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { compactDecrypt, importJWK } from "jose";
import kafkajs from "kafkajs";
import { canonical, clearText, fingerprint, headers, normalEmail, protectedHeader, seal } from "./contract.mjs";

const vectors = JSON.parse(readFileSync(process.argv[2], "utf8"));
const { sealing, fingerprints: prints } = vectors;
const requested = JSON.parse(vectors.records[0].canonical);
const partition = kafkajs.Partitioners.DefaultPartitioner();

async function opened(envelope) {
  const key = await importJWK(sealing.private_jwk, "ECDH-ES");
  const found = await compactDecrypt(envelope, key, { crit: { bs: true } });
  const { epk, ...header } = found.protectedHeader;
  return { header, epk, text: new TextDecoder().decode(found.plaintext) };
}

const checks = {
  partitions() {
    for (const one of vectors.partitions) {
      for (const [count, wanted] of Object.entries(one.of)) {
        const partitionMetadata = [...Array(Number(count)).keys()].map((n) => ({ partitionId: n, leader: 0 }));
        const found = partition({ topic: "t", partitionMetadata, message: { key: Buffer.from(one.key) } });
        assert.equal(found, wanted, `${one.key} of ${count}`);
      }
    }
  },
  destinations() {
    for (const one of vectors.destinations.email) {
      if (one.refused) assert.throws(() => normalEmail(one.given), undefined, one.given);
      else assert.equal(normalEmail(one.given), one.normal);
    }
  },
  fingerprints() {
    const keys = { current: prints.key_id, keys: { [prints.key_id]: prints.key_base64 } };
    for (const one of prints.destinations) {
      assert.equal(fingerprint(keys, one.letter, one.normal), one.fingerprint);
    }
    for (const one of prints.subjects) {
      assert.equal(fingerprint(keys, "u", `${one.tenant}\0${one.subject}`), one.fingerprint);
    }
  },
  async "the envelope of the vectors"() {
    const found = await opened(sealing.sealed);
    assert.deepEqual(found.header, sealing.protected);
    assert.equal(found.text, sealing.payload_text);
    assert.deepEqual(protectedHeader(requested, sealing.public_jwk.kid), sealing.protected);
    assert.equal(clearText(sealing.payload), sealing.payload_text);
  },
  async "an envelope of our own"() {
    const found = await opened(await seal(sealing.payload, requested, sealing.public_jwk));
    assert.deepEqual(found.header, sealing.protected);
    assert.equal(found.text, sealing.payload_text);
    assert.equal(found.epk.crv, "X25519");
  },
  records() {
    for (const one of vectors.records) {
      const record = JSON.parse(one.canonical);
      const shuffled = Object.fromEntries(Object.entries(record).reverse());
      assert.equal(canonical({ ...shuffled, unknown: 1 }), one.canonical);
      assert.deepEqual(headers(record, one.headers.ce_source), one.headers);
      assert.equal(one.key, record.intent_id);
    }
  },
};

for (const [name, check] of Object.entries(checks)) {
  await check();
  console.log(`${name}: as the vectors say`);
}
