// A grocer with a circuit breaker: when more than three ask at a time, the breaker opens, and for 400 ms everybody gets 503 at once; these fast failures are the limit: grocer PORT.
const http = require('http');

let asking = 0;
let openUntil = 0;

// Looking for the goods takes 20 ms; the stockroom gives up if it is crowded.
function fetchGoods(done) {
    asking++;
    if (asking > 3) {
        asking--;
        done(new Error('stockroom crowded'));
        return;
    }
    setTimeout(() => {
        asking--;
        done(null, 'two pounds of apples\n');
    }, 20);
}

function refuse(response) {
    response.statusCode = 503;
    response.setHeader('Retry-After', '1');
    response.end('circuit open\n');
}

http.createServer((request, response) => {
    request.resume();
    if (performance.now() < openUntil) {
        refuse(response);
        return;
    }
    fetchGoods((error, goods) => {
        if (error) {
            openUntil = performance.now() + 400;
            refuse(response);
            return;
        }
        response.end(goods);
    });
}).listen(Number(process.argv.at(-1)), '127.0.0.1');
