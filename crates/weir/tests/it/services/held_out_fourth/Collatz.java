// One selector thread that reads, computes and answers for all connections; this one thread's CPU is the limit: java -cp DIR Collatz PORT.
import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.StandardSocketOptions;
import java.nio.ByteBuffer;
import java.nio.channels.SelectionKey;
import java.nio.channels.Selector;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;

class Collatz {
    // The start below 15,000 with the longest chain: about 1.3 million steps, 2 to 3 ms.
    static long longest() {
        long best = 1;
        int most = 0;
        for (long start = 1; start < 15_000; start++) {
            int steps = 0;
            for (long n = start; n != 1; n = (n & 1) == 0 ? n >> 1 : 3 * n + 1) {
                steps++;
            }
            if (steps > most) {
                most = steps;
                best = start;
            }
        }
        return best;
    }

    static void serve(SelectionKey key, ByteBuffer buffer) throws IOException {
        SocketChannel client = (SocketChannel) key.channel();
        int[] seen = (int[]) key.attachment();
        buffer.clear();
        if (client.read(buffer) < 0) {
            client.close();
            return;
        }
        // A request ends where two line feeds follow each other (but for a carriage return); none has a body.
        for (buffer.flip(); buffer.hasRemaining();) {
            byte b = buffer.get();
            seen[0] = b == '\n' ? seen[0] + 1 : b == '\r' ? seen[0] : 0;
            if (seen[0] == 2) {
                seen[0] = 0;
                String body = longest() + "\n";
                client.write(ByteBuffer.wrap(("HTTP/1.1 200 OK\r\nContent-Length: " + body.length() + "\r\n\r\n" + body).getBytes()));
            }
        }
    }

    public static void main(String[] args) throws IOException {
        Selector selector = Selector.open();
        ServerSocketChannel listener = ServerSocketChannel.open();
        listener.bind(new InetSocketAddress("127.0.0.1", Integer.parseInt(args[args.length - 1])), 256);
        listener.configureBlocking(false);
        listener.register(selector, SelectionKey.OP_ACCEPT);
        ByteBuffer buffer = ByteBuffer.allocateDirect(8192);
        while (true) {
            selector.select(key -> {
                try {
                    if (key.isAcceptable()) {
                        SocketChannel client = listener.accept();
                        client.configureBlocking(false);
                        client.setOption(StandardSocketOptions.TCP_NODELAY, true);
                        client.register(selector, SelectionKey.OP_READ, new int[1]);
                    } else {
                        serve(key, buffer);
                    }
                } catch (IOException gone) {
                    key.cancel();
                    try {
                        key.channel().close();
                    } catch (IOException again) {
                        // It is gone all the same.
                    }
                }
            });
        }
    }
}
