// Numbers and times for people.

export function seconds(s) {
  if (s === null || s === undefined || Number.isNaN(s)) return "–";
  if (s === 0) return "0";
  if (s < 0.001) return `${Math.round(s * 1e6)} µs`;
  if (s < 0.01) return `${(s * 1000).toFixed(1)} ms`;
  if (s < 1) return `${Math.round(s * 1000)} ms`;
  if (s < 100) return `${s.toFixed(2)} s`;
  return `${Math.round(s)} s`;
}

export const count = (n) => Number(n).toLocaleString("en");

export const plural = (n, one, many = `${one}s`) => `${count(n)} ${n === 1 ? one : many}`;

// "12 s ago"; when: seconds since 1970.
export function ago(when) {
  const s = Math.max(0, Date.now() / 1000 - when);
  if (s < 5) return "just now";
  if (s < 90) return `${Math.round(s)} s ago`;
  if (s < 5400) return `${Math.round(s / 60)} min ago`;
  if (s < 129600) return `${Math.round(s / 3600)} h ago`;
  return new Date(when * 1000).toLocaleDateString();
}

export const moment = (when) => new Date(when * 1000).toLocaleString();

export function bytes(n) {
  if (n < 1024) return `${n} B`;
  if (n < 1024 ** 2) return `${(n / 1024).toFixed(0)} KiB`;
  return `${(n / 1024 ** 2).toFixed(1)} MiB`;
}

const COMMANDS = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069]/g;

// A text without what turns its direction around or has no form of its own: it shows that it is there.
export const visible = (text) =>
  text.replace(/\r\n/g, "\n").replace(COMMANDS, (one) =>
    one < " " ? String.fromCodePoint(0x2400 + one.codePointAt(0)) : "\ufffd");

export const shorter = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);
