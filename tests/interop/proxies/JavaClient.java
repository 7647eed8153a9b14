// Java's own HTTP client, which offers h2c with each request in plain text. Prints "N of M".
import java.io.ByteArrayInputStream;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublisher;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodyHandlers;
import java.time.Duration;

public class JavaClient {
    public static void main(String[] given) throws Exception {
        HttpClient client = HttpClient.newHttpClient();
        int count = Integer.parseInt(given[2]);
        int right = 0;
        for (int at = 0; at < count; at++) {
            String id = "java-" + at;
            byte[] body = given[1].replace("@", id).getBytes();
            boolean chunked = at % 3 == 1;
            BodyPublisher publisher =
                    chunked
                            ? BodyPublishers.ofInputStream(() -> new ByteArrayInputStream(body))
                            : BodyPublishers.ofByteArray(body);
            HttpRequest request =
                    HttpRequest.newBuilder(URI.create(given[0]))
                            .header("Content-Type", "application/json")
                            .header("x-request-id", id)
                            .timeout(Duration.ofSeconds(20))
                            .expectContinue(at % 3 == 2)
                            .POST(publisher)
                            .build();
            HttpResponse<String> answer = client.send(request, BodyHandlers.ofString());
            boolean own = answer.headers().firstValue("x-request-id").orElse("").equals(id);
            if (answer.statusCode() == 200 && own) {
                right++;
            } else {
                System.err.println(answer.statusCode() + " " + answer.body());
            }
        }
        System.out.println(right + " of " + count);
        System.exit(right == count ? 0 : 1);
    }
}
