// A service that lets 200 requests through in a second and refuses all others at once: node fast_failure.js PORT.
const http = require('http');
let tokens = 20;
setInterval(() => { tokens = Math.min(20, tokens + 2); }, 10);
http.createServer((request, response) => {
  if (tokens > 0) {
    tokens -= 1;
    response.end('hello');
  } else {
    response.writeHead(429, { 'Retry-After': '1' }).end('too many requests');
  }
}).listen(Number(process.argv[2]), '127.0.0.1');
