-- Dear bids with the time of day, and how many letters of their extra text are a c.
SELECT auction, bidder, price * 908,
  CASE WHEN hour BETWEEN 8 AND 18 THEN 'Day' WHEN hour <= 6 OR hour >= 20 THEN 'Night' ELSE 'Other' END,
  date_time, extra, length(extra) - length(replace(extra, 'c', ''))
FROM (SELECT *, date_time // 3600000 % 24 AS hour FROM bids) WHERE price * 908 > 1000000000 AND price * 908 < 50000000000;
-- What the job wrote.
SELECT * FROM read_json('{results}', format = 'newline_delimited', columns = {auction: 'BIGINT', bidder: 'BIGINT', price: 'BIGINT', time_of_day: 'VARCHAR', date_time: 'BIGINT', extra: 'VARCHAR', letters_c: 'BIGINT'});
