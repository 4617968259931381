// Each request is answered by a timer 75 ms after it came, however many there are; that fixed delay is the limit: java -cp DIR Kettle PORT.
import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;

class Kettle {
    static void answer(HttpExchange exchange) {
        byte[] body = "tea is ready\n".getBytes();
        try (exchange) {
            exchange.sendResponseHeaders(200, body.length);
            exchange.getResponseBody().write(body);
        } catch (IOException gone) {
            // The client has left.
        }
    }

    public static void main(String[] args) throws IOException {
        // Else head and body could be two segments held back by Nagle's algorithm: another limit.
        System.setProperty("sun.net.httpserver.nodelay", "true");
        HttpServer server = HttpServer.create(new InetSocketAddress("127.0.0.1", Integer.parseInt(args[args.length - 1])), 256);
        ScheduledExecutorService timer = Executors.newSingleThreadScheduledExecutor();
        // No thread waits for its own request, so any number of them can be under way.
        server.createContext("/", exchange -> timer.schedule(() -> answer(exchange), 75, TimeUnit.MILLISECONDS));
        server.start();
    }
}
