// A service that speaks HTTP/2, and breaks it by path. With two arguments, certificate and key, over TLS; prints its port.
const http2 = require('http2');
const fs = require('fs');
const [cert, key] = process.argv.slice(2);
const settings = { maxConcurrentStreams: 4 };
const server = cert
  ? http2.createSecureServer({ cert: fs.readFileSync(cert), key: fs.readFileSync(key), settings })
  : http2.createServer({ settings });
const counts = { sessions: 0, requests: 0, resets: 0 };
const seen = [];
const big = Buffer.alloc(300_000, 'x');

const sockets = new Map();
server.on('connection', (socket) => {
  sockets.set(socket.remotePort, socket);
  socket.on('error', () => {});
});
// Ends the connection without a word of HTTP/2.
const drop = (stream) => stream.session?.raw.end();

server.on('session', (session) => {
  counts.sessions += 1;
  session.on('error', () => {});
  session.requests = 0;
  session.raw = sockets.get(session.socket.remotePort);
});
server.on('stream', (stream, headers) => {
  counts.requests += 1;
  stream.session.requests += 1;
  stream.on('error', () => {});
  stream.on('aborted', () => { counts.resets += 1; });
  const chunks = [];
  stream.on('data', (chunk) => chunks.push(chunk));
  const path = headers[':path'];
  const answer = (status, body) => {
    if (stream.destroyed) return;
    stream.respond({ ':status': status, 'content-type': 'text/plain' });
    stream.end(body);
  };
  switch (path) {
    case '/counts': return answer(200, JSON.stringify({ ...counts, seen }));
    case '/big': return answer(200, big);
    case '/echo': return stream.on('end', () => {
      const body = Buffer.concat(chunks);
      seen.push({ method: headers[':method'], authority: headers[':authority'], test: headers['x-test'] });
      if (seen.length > 3) seen.shift();
      answer(200, body);
    });
    case '/slow-body':
      stream.respond({ ':status': 200 });
      stream.write('first');
      return setTimeout(() => { if (!stream.destroyed) stream.end('second'); }, 200);
    case '/unavailable': return answer(503, 'no');
    case '/reset': return stream.close(http2.constants.NGHTTP2_INTERNAL_ERROR);
    case '/lost': return drop(stream);
    case '/cut':
      stream.respond({ ':status': 200, 'content-length': 1000 });
      return stream.write('begun', () => drop(stream));
    case '/silent': return undefined;
    case '/goaway':
      // Every tenth request the connection ends in order, with others under way.
      answer(200, 'ok');
      if (stream.session.requests % 10 === 0) stream.session.close();
      return undefined;
    default: return answer(404, 'not found');
  }
});
server.listen(0, '127.0.0.1', () => console.log(server.address().port));
