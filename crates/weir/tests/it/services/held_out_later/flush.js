// An event loop that waits itself until each request is on disk: node flush.js PORT.
const fs = require('fs');
const http = require('http');
const journal = fs.openSync(`journal-${process.pid}`, 'a');
fs.unlinkSync(`journal-${process.pid}`);
http.createServer((request, response) => {
  fs.writeSync(journal, `${request.url}\n`.padStart(4096));
  fs.fsyncSync(journal);
  response.end('hello');
}).listen(Number(process.argv[2]), '127.0.0.1');
