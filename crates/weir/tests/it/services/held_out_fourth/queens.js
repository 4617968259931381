// Each request counts the ways to place nine queens, in one of four worker threads that share nothing; all CPU is the limit: node queens.js PORT.
const http = require('http');
const { Worker, isMainThread, parentPort } = require('worker_threads');

const SIZE = 9;
const ALL = (1 << SIZE) - 1;

// Row by row; each argument has a bit for each column that is threatened.
function ways(columns, left, right) {
  if (columns === ALL) return 1;
  let count = 0;
  for (let free = ALL & ~(columns | left | right); free; free &= free - 1) {
    const queen = free & -free;
    count += ways(columns | queen, (left | queen) << 1, (right | queen) >> 1);
  }
  return count;
}

// Ten times over, as a single count takes less than half a millisecond.
function work() {
  let count = 0;
  for (let i = 0; i < 10; i++) count = ways(0, 0, 0);
  return count;
}

function main() {
  const waiting = new Map();
  const workers = Array.from({ length: 4 }, () => new Worker(__filename));
  for (const worker of workers) {
    worker.on('message', ({ id, count }) => {
      const response = waiting.get(id);
      waiting.delete(id);
      response.end(`${count} ways\n`);
    });
  }
  let last = 0;
  http.createServer((request, response) => {
    last += 1;
    waiting.set(last, response);
    // In turn, so that with many clients all four have something to compute.
    workers[last % workers.length].postMessage(last);
  }).listen(Number(process.argv.at(-1)), '127.0.0.1', 512);
}

if (isMainThread) main();
else parentPort.on('message', (id) => parentPort.postMessage({ id, count: work() }));
