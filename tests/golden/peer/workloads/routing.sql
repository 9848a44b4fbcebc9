-- tables whose topics are renamed and merged by transforms
-- @setup
DROP DATABASE IF EXISTS shop; CREATE DATABASE shop; USE shop;
CREATE TABLE orders_2024 (id INT PRIMARY KEY, item VARCHAR(20) NOT NULL DEFAULT 'none', price DECIMAL(8,2));
CREATE TABLE orders_2025 (id INT PRIMARY KEY, item VARCHAR(20) NOT NULL DEFAULT 'none', price DECIMAL(8,2));
CREATE TABLE client_eu (name VARCHAR(10), born DATE, v INT, PRIMARY KEY (name, born)); CREATE TABLE client_us LIKE client_eu;
CREATE TABLE log_a (line TEXT); CREATE TABLE log_b (line TEXT); CREATE TABLE plain (id INT PRIMARY KEY, v INT);
INSERT INTO orders_2024 VALUES (1,'a',1.5),(2,'b',NULL); INSERT INTO orders_2025 VALUES (1,'c',2.5);
INSERT INTO client_eu VALUES ('Zoë','1970-01-02',1); INSERT INTO client_us VALUES ('Zoë','1970-01-02',2);
INSERT INTO log_a VALUES ('one'); INSERT INTO plain VALUES (1,1);
-- @change
USE shop;
BEGIN; INSERT INTO orders_2024 VALUES (3,'d',3); INSERT INTO orders_2025 VALUES (3,'e',4); UPDATE orders_2024 SET price = 9 WHERE id = 1; COMMIT;
UPDATE orders_2025 SET id = 30 WHERE id = 3; DELETE FROM orders_2024 WHERE id = 2;
UPDATE client_us SET v = 3; UPDATE client_eu SET name = 'Anaïs'; DELETE FROM client_us;
INSERT INTO log_a VALUES ('two'); INSERT INTO log_b VALUES ('three'); DELETE FROM log_a WHERE line = 'one'; UPDATE plain SET v = 2; DELETE FROM plain;
ALTER TABLE orders_2025 ADD COLUMN extra INT; INSERT INTO orders_2025 VALUES (6,'f',1,1); TRUNCATE orders_2025;
CREATE TABLE orders_2026 (id INT PRIMARY KEY); INSERT INTO orders_2026 VALUES (1);
