// A parallel collector that is called for each request, over a few million live objects: java -XX:+UseParallelGC Collects.java PORT.
import com.sun.net.httpserver.HttpServer;
import java.net.InetSocketAddress;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.Executors;

class Collects {
    public static void main(String[] args) throws Exception {
        System.setProperty("sun.net.httpserver.nodelay", "true");
        Map<Integer, String> live = new HashMap<>();
        for (int i = 0; i < 300_000; i++) {
            live.put(i, "value " + i);
        }
        HttpServer server = HttpServer.create(new InetSocketAddress("127.0.0.1", Integer.parseInt(args[0])), 128);
        server.setExecutor(Executors.newCachedThreadPool());
        server.createContext("/", exchange -> {
            System.gc();
            byte[] answer = live.get(7).getBytes();
            exchange.sendResponseHeaders(200, answer.length);
            try (var body = exchange.getResponseBody()) {
                body.write(answer);
            }
        });
        server.start();
    }
}
