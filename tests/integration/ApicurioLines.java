import com.fasterxml.jackson.databind.ObjectMapper;
import io.apicurio.registry.serde.avro.AvroKafkaDeserializer;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.math.BigDecimal;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Collection;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.avro.Schema;
import org.apache.avro.generic.GenericRecord;

/** Read records in Confluent's wire format, Base64 a line, with Apicurio's deserializer, and print each as JSON. */
public class ApicurioLines {
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] arguments) throws Exception {
        Map<String, Object> settings = new HashMap<>();
        settings.put("apicurio.registry.url", arguments[0]);
        settings.put("apicurio.registry.as-confluent", true);
        settings.put("apicurio.registry.use-id", "contentId");
        settings.put("apicurio.registry.headers.enabled", false);
        AvroKafkaDeserializer<Object> values = new AvroKafkaDeserializer<>();
        values.configure(settings, false);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        PrintStream out = new PrintStream(System.out, false, "UTF-8");
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            Object value = values.deserialize("any", Base64.getDecoder().decode(line));
            out.println(JSON.writeValueAsString(plain(value)));
        }
        out.flush();
    }

    private static Object plain(Object value) {
        if (value instanceof GenericRecord) {
            Map<String, Object> members = new LinkedHashMap<>();
            GenericRecord record = (GenericRecord) value;
            for (Schema.Field field : record.getSchema().getFields()) {
                members.put(field.name(), plain(record.get(field.pos())));
            }
            return members;
        }
        if (value instanceof Map) {
            Map<String, Object> members = new LinkedHashMap<>();
            ((Map<?, ?>) value).forEach((name, member) -> members.put(name.toString(), plain(member)));
            return members;
        }
        if (value instanceof Collection) {
            List<Object> elements = new ArrayList<>();
            for (Object element : (Collection<?>) value) {
                elements.add(plain(element));
            }
            return elements;
        }
        if (value instanceof ByteBuffer) {
            byte[] bytes = new byte[((ByteBuffer) value).remaining()];
            ((ByteBuffer) value).duplicate().get(bytes);
            return Base64.getEncoder().encodeToString(bytes);
        }
        if (value instanceof BigDecimal) {
            return Base64.getEncoder().encodeToString(((BigDecimal) value).unscaledValue().toByteArray());
        }
        if (value instanceof Float) {
            return ((Float) value).doubleValue();
        }
        return value instanceof CharSequence ? value.toString() : value;
    }
}
