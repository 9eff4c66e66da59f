// The publisher contract in Node: what schemas/publishers/CONTRACT.md says, and no more.
// It must not print or log a destination, a variable or a key.

import { createHmac } from "node:crypto";
import { domainToASCII } from "node:url";
import { CompactEncrypt, importJWK } from "jose";

export const SOURCE = "node-publisher";

const FIELDS = {
  intent_requested: [
    "record", "version", "intent_id", "tenant", "purpose", "policy", "locale", "country", "email_fingerprint",
    "sms_fingerprint", "sms_consent", "phone_verified_at_ms", "challenge_ref", "subject_key", "publisher",
    "variables", "requested_at_ms", "deadline_ms", "expiry_ms", "sealed",
  ],
  intent_completed: ["record", "version", "intent_id", "completed_at_ms", "source"],
  intent_cancelled: ["record", "version", "intent_id", "cancelled_at_ms", "source"],
};
const BOUND = [
  "intent_id", "tenant", "purpose", "policy", "deadline_ms", "expiry_ms", "email_fingerprint", "sms_fingerprint",
];

/** The record as canonical text: fields in the order of the contract, what is not given left out. */
export function canonical(record) {
  const fields = FIELDS[record.record];
  return JSON.stringify(picked(record, fields));
}

/** The headers that go beside a record. */
export function headers(record, source = SOURCE) {
  return {
    ce_specversion: "1.0",
    ce_type: `backstop.${record.record}.v${record.version}`,
    ce_source: source,
    ce_id: `${record.intent_id}:${record.record}`,
    "content-type": "application/json",
  };
}

/** The normal form of an address that is plainly one; what is refused is the contract's to say. */
export function normalEmail(text) {
  const at = text.lastIndexOf("@");
  const [local, domain] = [text.slice(0, at).toLowerCase(), domainToASCII(text.slice(at + 1))];
  if (!/^[a-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}$/.test(local) || !/^([a-z0-9-]+\.)+[a-z0-9-]{2,}$/.test(domain)) {
    throw new Error("this is not one e-mail address");
  }
  return `${local}@${domain}`;
}

/** `letter` is e, s or u; `text` the normal form, or `<tenant> NUL <subject>`. */
export function fingerprint(keys, letter, text) {
  const key = Buffer.from(keys.keys[keys.current], "base64");
  const hex = createHmac("sha256", key).update(`${letter}\0${text}`).digest("hex");
  return `${keys.current}.${letter}.${hex.slice(0, 32)}`;
}

/** What is sealed, as text. */
export function clearText(payload) {
  return JSON.stringify({ email: payload.email, phone: payload.phone ?? null, variables: payload.variables });
}

/** The protected header that binds the envelope to its request. */
export function protectedHeader(request, kid) {
  return { alg: "ECDH-ES", enc: "A256GCM", kid, crit: ["bs"], bs: picked(request, BOUND) };
}

/** The envelope for this request. */
export async function seal(payload, request, jwk) {
  const key = await importJWK(jwk, "ECDH-ES");
  return new CompactEncrypt(new TextEncoder().encode(clearText(payload)))
    .setProtectedHeader(protectedHeader(request, jwk.kid))
    .encrypt(key, { crit: { bs: true } });
}

/** A whole request. `held` is publisher.json; instants are milliseconds. */
export async function request(held, asked) {
  const { email, phone, variables, subject, ...clear } = asked;
  const payload = { email: normalEmail(email), phone: phone ?? null, variables };
  const made = {
    record: "intent_requested",
    version: 1,
    ...clear,
    email_fingerprint: fingerprint(held.fingerprint, "e", payload.email),
    sms_fingerprint: phone ? fingerprint(held.fingerprint, "s", phone) : undefined,
    subject_key: subject ? fingerprint(held.fingerprint, "u", `${clear.tenant}\0${subject}`) : undefined,
    publisher: SOURCE,
    variables: Object.keys(variables).sort(),
  };
  return { ...made, sealed: await seal(payload, made, held.sealing) };
}

function picked(given, names) {
  const found = {};
  for (const name of names) {
    if (given[name] !== undefined && given[name] !== null) found[name] = given[name];
  }
  return found;
}
