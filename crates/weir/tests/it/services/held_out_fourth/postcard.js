// Sends the head at once and the body after it, with Nagle's algorithm left on; the client's delayed acknowledgement is the limit: node postcard.js PORT.
const http = require('http');

const BODY = 'wish you were here\n';

// Node switches Nagle's algorithm off by itself unless told otherwise.
http.createServer({ noDelay: false }, (request, response) => {
  response.setHeader('Content-Type', 'text/plain');
  response.setHeader('Content-Length', BODY.length);
  // The first small segment leaves here; the second waits until the first has been acknowledged.
  response.flushHeaders();
  response.end(BODY);
}).listen(Number(process.argv.at(-1)), '127.0.0.1', 512);
