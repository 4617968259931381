// Downloads of 100 kB that leave at 1 MB/s on each connection, piece by piece; that bandwidth is the limit: node film.js PORT.
const http = require('http');

const PIECE = Buffer.alloc(10000, 'f');
const PIECES = 10;

http.createServer((request, response) => {
  response.socket.setNoDelay(true);
  response.writeHead(200, { 'Content-Type': 'application/octet-stream', 'Content-Length': PIECE.length * PIECES });
  let sent = 0;
  // The first piece leaves at once and the last after 90 ms.
  const send = () => {
    response.write(PIECE);
    sent += 1;
    if (sent === PIECES) {
      clearInterval(timer);
      response.end();
    }
  };
  const timer = setInterval(send, 10);
  response.on('close', () => clearInterval(timer));
  send();
}).listen(Number(process.argv[2]), '127.0.0.1', 512);
