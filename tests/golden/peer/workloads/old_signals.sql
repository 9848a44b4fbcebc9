-- a signal table that has rows before the snapshot: they are signals that are over
-- @setup
DROP DATABASE IF EXISTS osdb; CREATE DATABASE osdb; USE osdb;
CREATE TABLE a (id INT PRIMARY KEY, v INT); CREATE TABLE sig (id VARCHAR(64) PRIMARY KEY, type VARCHAR(32), data VARCHAR(2048)); CREATE TABLE z (id INT PRIMARY KEY, v INT); CREATE TABLE empty_t (id INT PRIMARY KEY);
INSERT INTO a VALUES (1,1),(2,2); INSERT INTO sig VALUES ('old1','log','{"message":"long ago"}'),('old2','execute-snapshot','{"data-collections":["osdb.a"],"type":"incremental"}'); INSERT INTO z VALUES (1,1),(2,2);
-- @change
USE osdb; UPDATE a SET v = 3 WHERE id = 1;
INSERT INTO sig VALUES ('new1','log','{"message":"now"}');
DELETE FROM sig WHERE id = 'old1';
UPDATE z SET v = 4 WHERE id = 2;
