// A service that answers each request 60 ms after it came, however many there are; that fixed delay is the limit: node polite.js PORT.
const http = require('http');

http.createServer((request, response) => {
  setTimeout(() => {
    response.setHeader('Content-Type', 'text/plain');
    response.end('after you\n');
  }, 60);
}).listen(Number(process.argv[2]), '127.0.0.1', 512);
