-- The last bid of each bidder and auction. Of several with the last time it is not said which.
SELECT bidder, auction, max(date_time), true FROM bids GROUP BY ALL;
-- What the job wrote.
SELECT row.bidder, row.auction, row.date_time, EXISTS (FROM bids WHERE bids = results.row) FROM (
  SELECT row FROM read_json('{results}', format = 'newline_delimited', columns = {kind: 'VARCHAR', row: 'STRUCT(auction BIGINT, bidder BIGINT, price BIGINT, channel VARCHAR, url VARCHAR, date_time BIGINT, extra VARCHAR)'})
  GROUP BY row HAVING sum(adds(kind)) > 0) AS results;
