// Runs a WebAssembly program of wasm32-wasip1: its path, then its arguments.
import { readFile } from "node:fs/promises";
import { WASI } from "node:wasi";

const args = process.argv.slice(2);
const wasi = new WASI({ version: "preview1", args });
const module = await WebAssembly.compile(await readFile(args[0]));
process.exit(wasi.start(await WebAssembly.instantiate(module, wasi.getImportObject())));
