// The calls that the filter makes of its host for a request, where requests are few and where they are
// many, and the time that it takes: the module as it ships, in Node, under a host that does next to
// nothing.
//
//   node bench/calls.mjs MODULE CONFIGURATION.json [BODY_BYTES] [REQUESTS]
import { readFileSync } from "node:fs";
import { randomFillSync } from "node:crypto";

const [modulePath, configurationPath, bodyBytes = "4096", requests = "20000"] = process.argv.slice(2);
const utf8 = new TextEncoder();
const text = new TextDecoder();

let calls = {};
let hostNanos = 0n;
const metrics = [];
const shared = new Map();
let headers = new Map();
let body = new Uint8Array();
let clock = BigInt(Date.now()) * 1_000_000n;
const configuration = utf8.encode(readFileSync(configurationPath, "utf8"));

let wasm;
const view = () => new DataView(wasm.memory.buffer);
const bytes = (at, size) => new Uint8Array(wasm.memory.buffer, at, size);
const string = (at, size) => text.decode(bytes(at, size));
const OK = 0;
const NOT_FOUND = 1;

function give(value, at, size) {
  const place = wasm.proxy_on_memory_allocate(value.length);
  bytes(place, value.length).set(value);
  view().setUint32(at, place, true);
  view().setUint32(size, value.length, true);
  return OK;
}

const PLUGIN_CONFIGURATION = 7;
const ENDPOINTS = "x-gateway-destination-endpoint";
const properties = {
  plugin_root_id: utf8.encode("rolter"),
  plugin_vm_id: utf8.encode("rolter"),
  "response\0code_details": utf8.encode("via_upstream"),
  "xds\0route_name": utf8.encode("llm"),
};

const env = {
  proxy_get_buffer_bytes: (kind, start, max, at, size) => {
    const buffer = kind === PLUGIN_CONFIGURATION ? configuration : body;
    return give(buffer.subarray(start, Math.min(buffer.length, start + (max >>> 0))), at, size);
  },
  proxy_get_header_map_value: (_map, key, keySize, at, size) => {
    const value = headers.get(string(key, keySize));
    return value === undefined ? NOT_FOUND : give(utf8.encode(value), at, size);
  },
  proxy_get_header_map_pairs: (_map, at, size) => {
    const pairs = [...headers].map(([name, value]) => [utf8.encode(name), utf8.encode(value)]);
    const length = pairs.reduce((sum, [name, value]) => sum + 10 + name.length + value.length, 4);
    const out = new Uint8Array(length);
    const fields = new DataView(out.buffer);
    fields.setUint32(0, pairs.length, true);
    let offset = 4;
    for (const [name, value] of pairs) {
      fields.setUint32(offset, name.length, true);
      fields.setUint32(offset + 4, value.length, true);
      offset += 8;
    }
    for (const part of pairs.flat()) {
      out.set(part, offset);
      offset += part.length + 1;
    }
    return give(out, at, size);
  },
  proxy_replace_header_map_value: (_map, key, keySize, at, size) => {
    if (string(key, keySize) === ENDPOINTS) {
      // The first answers.
      properties["upstream\0address"] = utf8.encode(string(at, size).split(",")[0]);
    }
    return OK;
  },
  proxy_add_header_map_value: () => OK,
  proxy_remove_header_map_value: () => OK,
  proxy_get_property: (path, pathSize, at, size) => {
    const value = properties[string(path, pathSize)];
    return value === undefined ? NOT_FOUND : give(value, at, size);
  },
  proxy_set_property: () => OK,
  proxy_get_shared_data: (key, keySize, at, size, cas) => {
    const value = shared.get(string(key, keySize));
    if (value === undefined) return NOT_FOUND;
    view().setUint32(cas, 1, true);
    return give(value, at, size);
  },
  proxy_set_shared_data: (key, keySize, at, size) => {
    shared.set(string(key, keySize), bytes(at, size).slice());
    return OK;
  },
  proxy_get_current_time_nanoseconds: (at) => {
    clock += 20_000n;
    view().setBigUint64(at, clock, true);
    return OK;
  },
  proxy_define_metric: (_kind, name, nameSize, at) => {
    metrics.push({ name: string(name, nameSize), value: 0n });
    view().setUint32(at, metrics.length - 1, true);
    return OK;
  },
  proxy_get_metric: (id, at) => {
    view().setBigUint64(at, BigInt.asUintN(64, metrics[id].value), true);
    return OK;
  },
  proxy_increment_metric: (id, by) => {
    metrics[id].value += by;
    return OK;
  },
  proxy_record_metric: (id, value) => {
    metrics[id].value = value;
    return OK;
  },
  proxy_log: (_level, at, size) => {
    console.error(string(at, size));
    return OK;
  },
};

/// What a call is for, as far as its arguments tell.
function subject(name, args) {
  if (/metric$/.test(name) && !/define/.test(name)) return metrics[args[0]].name.replace(/;target=[^;]*/, "");
  if (/map_value/.test(name)) return string(args[1], args[2]);
  if (/property|shared_data/.test(name)) return string(args[0], args[1]).replaceAll("\0", ".").replace(/\/\d+$/, "/N");
  return "";
}

const counted = (name, call) => (...args) => {
  if (calls !== undefined) {
    const key = `${name.replace("proxy_", "")} ${subject(name, args)}`;
    calls[key] = (calls[key] ?? 0) + 1;
  }
  return call(...args);
};

const module = new WebAssembly.Module(readFileSync(modulePath));
const imports = { env: {}, wasi_snapshot_preview1: {} };
for (const { module: from, name } of WebAssembly.Module.imports(module)) {
  imports[from][name] = from === "env" ? counted(name, env[name] ?? (() => OK)) : () => 0;
}
imports.wasi_snapshot_preview1.random_get = (at, size) => {
  randomFillSync(bytes(at, size));
  return 0;
};
wasm = new WebAssembly.Instance(module, imports).exports;
wasm._initialize();
wasm.proxy_on_context_create(1, 0);
wasm.proxy_on_vm_start(1, 0);
if (!wasm.proxy_on_configure(1, configuration.length)) process.exit(1);
wasm.proxy_on_tick(1);

// Chats that share their beginning in groups, as prompts do.
const words = (seed, length) => {
  let out = "";
  for (let state = seed; out.length < length; ) {
    state = (Math.imul(state, 1103515245) + 12345) >>> 0;
    out += state.toString(36) + (out.length % 97 < 8 ? ".\\n" : " ");
  }
  return out.slice(0, length).replace(/\\$/, ".");
};
const size = Number(bodyBytes);
const bodies = Array.from({ length: 256 }, (_, index) =>
  utf8.encode(
    `{"model":"m","messages":[{"role":"system","content":"${words((index % 8) + 1, size * 0.6)}"},` +
      `{"role":"user","content":"${words(index + 100, size * 0.4 - 130)}"}],"max_tokens":64,"stream":true}`,
  ),
);

let context = 10;
function request(index) {
  context += 1;
  body = bodies[index % bodies.length];
  headers = new Map([
    [":authority", "llm.example.com"],
    [":path", "/v1/chat/completions"],
    [":method", "POST"],
    [":scheme", "http"],
    ["user-agent", "client/1.0"],
    ["content-type", "application/json"],
    ["content-length", String(body.length)],
    ["x-forwarded-proto", "http"],
    ["x-request-id", "5c8f7a0e-2f0a-4d0c-9b8e-1f2d3c4b5a69"],
  ]);
  wasm.proxy_on_context_create(context, 1);
  wasm.proxy_on_request_headers(context, headers.size, 0);
  wasm.proxy_on_request_body(context, body.length, 1);
  headers = new Map([[":status", "200"], ["content-type", "application/json"], ["content-length", "249"]]);
  body = utf8.encode("x".repeat(249));
  wasm.proxy_on_response_headers(context, headers.size, 0);
  wasm.proxy_on_response_body(context, body.length, 1);
  wasm.proxy_on_done(context);
  wasm.proxy_on_log(context);
  wasm.proxy_on_delete(context);
}

// Calls for a request, on average over so many.
function count(amount) {
  calls = {};
  for (let index = 0; index < amount; index += 1) request(index);
  let sum = 0;
  for (const [call, times] of Object.entries(calls).sort(([, a], [, b]) => b - a)) {
    console.log(`${(times / amount).toFixed(2).padStart(6)}  ${call}`);
    sum += times / amount;
  }
  console.log(`${sum.toFixed(2).padStart(6)}  calls`);
  calls = undefined;
}

// The filter judges with a tick whether there were many since the last one.
const SECOND = 1_000_000_000n;
for (let index = 0; index < 300; index += 1) request(index);
clock += SECOND;
wasm.proxy_on_tick(1);
console.log("few requests:");
count(1);
for (let index = 0; index < 10_000; index += 1) request(index);
wasm.proxy_on_tick(1);
console.log("many requests:");
count(1_000);

const total = Number(requests);
for (let index = 0; index < total / 4; index += 1) request(index);
const start = process.hrtime.bigint();
for (let index = 0; index < total; index += 1) request(index);
console.log(`${(Number(process.hrtime.bigint() - start) / total / 1000).toFixed(1)} us a request, the host's part included`);
