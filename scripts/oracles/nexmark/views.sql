-- The events of one run, and what several queries are made of. `winning` is the highest bid of each auction that came while
-- it ran, of equal ones the earliest.
CREATE TABLE events AS SELECT * FROM read_json('{events}', format = 'newline_delimited', columns = {
  Person: 'STRUCT(id BIGINT, name VARCHAR, email_address VARCHAR, credit_card VARCHAR, city VARCHAR, state VARCHAR, date_time BIGINT, extra VARCHAR)',
  Auction: 'STRUCT(id BIGINT, item_name VARCHAR, description VARCHAR, initial_bid BIGINT, reserve BIGINT, date_time BIGINT, expires BIGINT, seller BIGINT, category BIGINT, extra VARCHAR)',
  Bid: 'STRUCT(auction BIGINT, bidder BIGINT, price BIGINT, channel VARCHAR, url VARCHAR, date_time BIGINT, extra VARCHAR)'});
CREATE VIEW persons AS SELECT unnest(Person) FROM events WHERE Person IS NOT NULL;
CREATE VIEW auctions AS SELECT unnest(Auction) FROM events WHERE Auction IS NOT NULL;
CREATE TABLE bids AS SELECT unnest(Bid) FROM events WHERE Bid IS NOT NULL;
CREATE TABLE winning AS
  SELECT a.id AS auction, a.seller, a.category, a.expires, b.price, b.date_time
  FROM auctions AS a JOIN bids AS b ON b.auction = a.id AND b.date_time BETWEEN a.date_time AND a.expires
  QUALIFY row_number() OVER (PARTITION BY a.id ORDER BY b.price DESC, b.date_time) = 1;
CREATE MACRO level(price) AS CASE WHEN price < 10000 THEN 1 WHEN price < 1000000 THEN 2 ELSE 3 END;
CREATE MACRO day_number(ms) AS ms // 86400000;
CREATE MACRO adds(kind) AS CASE WHEN kind IN ('Insert', 'UpdateAfter') THEN 1 ELSE -1 END;
