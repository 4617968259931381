// Services on one event loop: node event_loop.js LIMIT PORT.
const http = require('http');
const [limit, port] = process.argv.slice(2);
const waiting = [];
let free = 3;
const compute = (ms) => { const end = performance.now() + ms; while (performance.now() < end); };
const release = () => { const next = waiting.shift(); if (next) run(next); else free += 1; };
const run = (answer) => setTimeout(() => { answer(); release(); }, 20);
const work = {
  timer: (answer) => setTimeout(answer, 30),
  pool: (answer) => { if (free > 0) { free -= 1; run(answer); } else waiting.push(answer); },
  cpu: (answer) => { compute(2); answer(); },
}[limit];
http.createServer((request, response) => work(() => response.end('hello'))).listen(Number(port), '127.0.0.1');
