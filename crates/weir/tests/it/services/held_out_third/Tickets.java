// A shop with three tills of 15 ms that sends everyone else away with 503 at once; these fast failures are the limit: java -cp DIR Tickets PORT.
import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.util.concurrent.Executors;
import java.util.concurrent.Semaphore;

class Tickets {
    static final Semaphore TILLS = new Semaphore(3);

    static void answer(HttpExchange exchange, int status, String text) throws IOException {
        byte[] body = text.getBytes();
        exchange.sendResponseHeaders(status, body.length);
        try (var out = exchange.getResponseBody()) {
            out.write(body);
        }
    }

    static void sell(HttpExchange exchange) throws IOException {
        if (!TILLS.tryAcquire()) {
            answer(exchange, 503, "come back later\n");
            return;
        }
        try {
            Thread.sleep(15);
        } catch (InterruptedException never) {
            throw new IllegalStateException(never);
        } finally {
            TILLS.release();
        }
        answer(exchange, 200, "one ticket\n");
    }

    public static void main(String[] args) throws IOException {
        // Else head and body could be two segments held back by Nagle's algorithm: another limit.
        System.setProperty("sun.net.httpserver.nodelay", "true");
        HttpServer server = HttpServer.create(new InetSocketAddress("127.0.0.1", Integer.parseInt(args[0])), 256);
        server.setExecutor(Executors.newCachedThreadPool());
        server.createContext("/", Tickets::sell);
        server.start();
    }
}
