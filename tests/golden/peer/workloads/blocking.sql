-- ad-hoc blocking snapshots of two tables while changes of theirs and of a third one wait
-- @setup
DROP DATABASE IF EXISTS sigdb; CREATE DATABASE sigdb; USE sigdb;
CREATE TABLE dbz_signal (id VARCHAR(64) PRIMARY KEY, type VARCHAR(32) NOT NULL, data VARCHAR(2048) NULL);
CREATE TABLE a (id INT PRIMARY KEY, v INT, s VARCHAR(20)); CREATE TABLE b (x VARCHAR(10), y INT, v DATETIME(3), PRIMARY KEY (x, y)); CREATE TABLE other (id INT PRIMARY KEY, v INT);
INSERT INTO a WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 50) SELECT i, 0, CONCAT('row', i) FROM n; INSERT INTO b SELECT CONCAT('k', id DIV 10), id, '2024-05-06 07:08:09.123' FROM a; INSERT INTO other SELECT id, 0 FROM a WHERE id < 5;
-- @change
USE sigdb; UPDATE a SET v = v + 1 WHERE id < 10; DELETE FROM a WHERE id = 20; INSERT INTO a VALUES (100, 1, 'new'); UPDATE other SET v = 5; UPDATE a SET id = 200 WHERE id = 30; DELETE FROM b WHERE y > 45;
INSERT INTO dbz_signal VALUES ('b1', 'execute-snapshot', '{"data-collections": ["sigdb.a", "sigdb.b"], "type": "blocking"}');
-- @wait 5
USE sigdb; UPDATE a SET v = 7 WHERE id = 200; DELETE FROM b WHERE y = 3; UPDATE other SET v = 6 WHERE id = 1; INSERT INTO dbz_signal VALUES ('b2', 'execute-snapshot', '{"data-collections": ["sigdb.b", "sigdb.a"], "type": "blocking"}');
-- @wait 5
USE sigdb; DELETE FROM a WHERE id = 200; INSERT INTO b VALUES ('k9', 99, '2024-01-01 00:00:00'); UPDATE other SET v = 8 WHERE id = 1;
