// A thread pool of three that reads from something slow for 15 ms: java Pool.java PORT.
import com.sun.net.httpserver.HttpServer;
import java.net.InetSocketAddress;
import java.util.concurrent.Executors;

class Pool {
    public static void main(String[] args) throws Exception {
        // Else head and body are two segments, and Nagle holds the second back: another limit.
        System.setProperty("sun.net.httpserver.nodelay", "true");
        HttpServer server = HttpServer.create(new InetSocketAddress("127.0.0.1", Integer.parseInt(args[0])), 128);
        server.setExecutor(Executors.newFixedThreadPool(3));
        server.createContext("/", exchange -> {
            try {
                Thread.sleep(15);
            } catch (InterruptedException never) {
                throw new IllegalStateException(never);
            }
            exchange.sendResponseHeaders(200, 5);
            try (var body = exchange.getResponseBody()) {
                body.write("hello".getBytes());
            }
        });
        server.start();
    }
}
